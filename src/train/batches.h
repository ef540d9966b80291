// The images of a run: which there are, who decodes them, and the batches made of them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "backend/backend.h"
#include "backend/image_decoder.h"
#include "base/machine.h"
#include "data/loader.h"
#include "data/record_source.h"
#include "plan/plan.h"
#include "train/config.h"

namespace redline::train {

constexpr int kBatchSlots = 4;  // batches that are ready, or being made

// The data set's images, with those to validate on taken from --val-dir or held out by --val-split.
// Where stop becomes true while they are indexed, throws data::Stopped.
data::OpenSplits open_splits(const Config& config, const std::atomic<bool>* stop = nullptr);
// The option that gives a data set without a val split one, in words.
std::string remedy_without_val(const std::string& path);

// Training images that a device decodes.
struct Decoding {
  std::shared_ptr<backend::ImageDecoder> decoder;  // empty: the CPU decodes them
  double pixels = 0;  // of an image, on average; 0 for one that is left to the CPU

  // Of the device, for batches as a plan takes them.
  std::size_t memory_need(const plan::Plan& train) const;
};

// Who decodes training images: a device's decoder, or empty for the CPU. Throws UnavailableError when
// --decode gpu cannot be had; auto says why in the log.
std::shared_ptr<backend::ImageDecoder> resolve_decoder(const Config& config, backend::Backend& backend);

// Threads that read and decode, where --workers does not say.
std::int64_t default_workers(const Machine& machine, const backend::Backend& backend);

data::MixOptions mix_options(const AugmentConfig& augment);

// How batches are made from records; without a backend, apart from what depends on the device or the rank.
data::LoaderOptions loader_options(const Config& config, bool train);
data::LoaderOptions loader_options(const Config& config, const backend::Backend& backend, int rank,
                                   bool train);

// Every record once, as evaluation sees them; this rank's part of config.ranks.
std::unique_ptr<data::Loader> evaluation_batches(const Config& config, const backend::Backend& backend,
                                                 std::shared_ptr<const data::RecordSource> records,
                                                 int rank = 0);

}  // namespace redline::train
