// Opens and checks everything a run needs before its first step: the device, the data, the element type, the
// plans of training and evaluation, and whether all of it fits into memory. Writes nothing.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/machine.h"
#include "data/batch_source.h"
#include "data/sources/record_source.h"
#include "train/batches.h"
#include "train/config.h"
#include "train/memory.h"
#include "train/plans.h"

namespace redline::train {

// The device of a configuration, for a single process or one of several ranks. Throws UnavailableError if it
// is not available.
std::unique_ptr<backend::Backend> open_device(const Config& config,
                                              std::shared_ptr<comm::Communicator> communicator = {},
                                              const std::atomic<bool>* stop = nullptr);

// The type of activations, and why it was chosen: "mixed precision, the default on a GPU".
struct Precision {
  graph::DType dtype = graph::DType::f32;
  std::string why;
};

// What --dtype and --amp mean on this device; with neither, mixed precision on a GPU and fp32 on a CPU. tf32
// is fp32 whose products a GPU may round. Throws UnavailableError if the device does not support the type.
Precision resolve_dtype(const Config& config, const backend::Backend& backend);

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

// With class_names, from a run to resume, the data's classes get the labels they have there. Throws
// UsageError, DataError or UnavailableError, each naming the flag or path to change, and data::Stopped if
// stop became true while the data was indexed.
Setup prepare(const Config& config, const std::shared_ptr<comm::Communicator>& communicator = {},
              const std::atomic<bool>* stop = nullptr, const std::vector<std::string>& class_names = {});

// Throws BatchTooLarge for a run that could not allocate its memory although it should fit, with the system's
// message `what` and the largest --batch-size that fits into the memory that is free now.
[[noreturn]] void refuse_batch(const Setup& setup, const std::string& what);

// The batches of a prepared run. The second is empty if nothing is held out.
std::unique_ptr<data::BatchSource> train_batches(const Setup& setup);
std::unique_ptr<data::BatchSource> val_batches(const Setup& setup);

}  // namespace redline::train
