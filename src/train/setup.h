// What a run needs before its first step, opened and checked: the device, the data, the element type, the
// plans of training and evaluation, and whether all of it fits into memory. Nothing is written.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/image_decoder.h"
#include "base/error.h"
#include "base/machine.h"
#include "data/batch_source.h"
#include "data/loader.h"
#include "data/record_source.h"
#include "plan/plan.h"
#include "train/config.h"

namespace redline::train {

// The plans of a run. They share the weights.
struct Plans {
  std::shared_ptr<const plan::Plan> train, eval;           // training at the largest of its image sizes
  std::vector<std::shared_ptr<const plan::Plan>> smaller;  // and at the others
};

// The height and width that a plan takes.
std::int64_t image_size_of(const plan::Plan& plan);

// What the planner is asked for. `batch` is in images; training at the largest size, evaluation takes the
// plain cross-entropy.
plan::Options train_plan_options(const Config& config, graph::DType dtype, std::int64_t classes,
                                 std::int64_t batch);
plan::Options eval_plan_options(const Config& config, graph::DType dtype, std::int64_t classes,
                                std::int64_t batch);

Plans make_plans(const Config& config, const plan::Capabilities& backend, graph::DType dtype,
                 std::int64_t classes, std::int64_t batch);

// Bytes on the host, and on a device that has memory of its own; 0: none, or not known.
struct Memory {
  std::uint64_t host = 0, device = 0;
};

// Training images that a device decodes.
struct Decoding {
  std::shared_ptr<backend::ImageDecoder> decoder;  // empty: the CPU decodes them
  double pixels = 0;  // of an image, on average; 0 for one that is left to the CPU

  // Of the device, for batches as a plan takes them.
  std::size_t memory_need(const plan::Plan& train) const;
};

// The memory that a run needs: weights and activations, counted once for all plans, scratch of kernels, the
// loader's batches and decoder, and the copy that checkpoints are written from.
Memory memory_need(const Config& config, const Plans& plans, const backend::Backend& backend,
                   const Decoding& decoding = {});
// The memory that is free now.
Memory memory_available(const Machine& machine, const backend::Backend& backend);

// A batch larger than memory. Its own type, so that a search for the largest batch can catch it.
class BatchTooLarge : public UsageError {
 public:
  using UsageError::UsageError;
};

// Throws BatchTooLarge when the run needs more than is `available`, naming both and the largest --batch-size
// that fits.
void check_memory(const Config& config, const backend::Backend& backend, graph::DType dtype,
                  std::int64_t classes, const Plans& plans, const Memory& available,
                  const Decoding& decoding = {});

// The device that a configuration names, for a process alone or a rank among others. Throws UnavailableError
// when it is not there.
std::unique_ptr<backend::Backend> open_device(const Config& config,
                                              std::shared_ptr<comm::Communicator> communicator = {},
                                              const std::atomic<bool>* stop = nullptr);

// The type of activations, and why it was taken: "mixed precision, the default on a GPU".
struct Precision {
  graph::DType dtype = graph::DType::f32;
  std::string why;
};

// What --dtype and --amp mean on this device; with neither, mixed precision on a GPU and fp32 on a CPU. tf32
// is fp32 whose products a GPU may round. Throws UnavailableError when the device does not have the type.
Precision resolve_dtype(const Config& config, const backend::Backend& backend);

// Who decodes training images: a device's decoder, or empty for the CPU. Throws UnavailableError when
// --decode gpu cannot be had; auto says why in the log.
std::shared_ptr<backend::ImageDecoder> resolve_decoder(const Config& config, backend::Backend& backend);

// The data set's images, with those to validate on taken from --val-dir or held out by --val-split.
data::OpenSplits open_splits(const Config& config);
// The option that gives a data set without a val split one, in words.
std::string remedy_without_val(const std::string& path);

struct Setup {
  Config config;  // resolved: classes, type, length and workers are set
  Machine machine;
  std::unique_ptr<backend::Backend> backend;
  graph::DType dtype = graph::DType::f32;
  std::string why_dtype;  // for people
  std::int64_t classes = 0;
  std::vector<std::string> class_names;                                  // by label; none: not known
  std::shared_ptr<const data::RecordSource> train_records, val_records;  // both empty for synthetic data
  Plans plans;
  Decoding decoding;
  int rank = 0;  // of config.ranks

  bool synthetic() const { return train_records == nullptr; }
  std::string data_text() const;  // for people: path and kind
};

// With class_names, of a run that goes on, the data's classes get the labels that they have there. Throws
// UsageError, DataError or UnavailableError, each naming the flag or path to change.
Setup prepare(const Config& config, const std::shared_ptr<comm::Communicator>& communicator = {},
              const std::atomic<bool>* stop = nullptr, const std::vector<std::string>& class_names = {});

// Throws BatchTooLarge for a run that did not get its memory although it should fit, with `what` the system
// said and the largest --batch-size that fits what is free now.
[[noreturn]] void refuse_batch(const Setup& setup, const std::string& what);

// How batches are made from records, apart from what depends on the device or the rank.
data::LoaderOptions loader_options(const Config& config, bool train);

// The batches of a prepared run. The second is empty when there is nothing held out.
std::unique_ptr<data::BatchSource> train_batches(const Setup& setup);
std::unique_ptr<data::BatchSource> val_batches(const Setup& setup);
// Every record once, as evaluation sees them; this rank's part of config.ranks.
std::unique_ptr<data::Loader> evaluation_batches(const Config& config, const backend::Backend& backend,
                                                 std::shared_ptr<const data::RecordSource> records,
                                                 int rank = 0);

}  // namespace redline::train
