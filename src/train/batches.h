// The images of a run: opening them, choosing what decodes them, and making batches.
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
#include "data/sources/record_source.h"
#include "plan/plan.h"
#include "train/config.h"

namespace redline::train {

constexpr int kBatchSlots = 4;  // batches that are ready, or being made

// The data set's images, with validation images from --val-dir or held out by --val-split. Throws
// data::Stopped if stop becomes true while they are indexed.
data::OpenSplits open_splits(const Config& config, const std::atomic<bool>* stop = nullptr);
// For messages: the option that provides validation images for a data set without a val split.
std::string remedy_without_val(const std::string& path);

// Training images that a device decodes.
struct Decoding {
  std::shared_ptr<backend::ImageDecoder> decoder;  // empty: the CPU decodes them
  double pixels = 0;  // of an image, on average; 0 for one that is left to the CPU

  // Device memory needed, for the batches of a plan.
  std::size_t memory_need(const plan::Plan& train) const;
};

// What decodes training images: a device's decoder, or empty for the CPU. Throws UnavailableError if --decode
// gpu is not possible; auto logs the reason.
std::shared_ptr<backend::ImageDecoder> resolve_decoder(const Config& config, backend::Backend& backend);

// The default of --workers: threads that read and decode.
std::int64_t default_workers(const Machine& machine, const backend::Backend& backend);

data::MixOptions mix_options(const AugmentConfig& augment);

// How batches are made from records; without a backend, settings that depend on the device or the rank are
// not set.
data::LoaderOptions loader_options(const Config& config, bool train);
data::LoaderOptions loader_options(const Config& config, const backend::Backend& backend, int rank,
                                   bool train);

// Every record once, as evaluation sees them; this rank's part of config.ranks.
std::unique_ptr<data::Loader> evaluation_batches(const Config& config, const backend::Backend& backend,
                                                 std::shared_ptr<const data::RecordSource> records,
                                                 int rank = 0);

}  // namespace redline::train
