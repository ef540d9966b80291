// What a run needs before its first step, opened and checked: the device, the data, the element type, the
// plans of training and evaluation, and whether all of it fits into memory. Nothing is written.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/machine.h"
#include "data/batch_source.h"
#include "data/record_source.h"
#include "train/batches.h"
#include "train/config.h"
#include "train/memory.h"
#include "train/plans.h"

namespace redline::train {

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
// UsageError, DataError or UnavailableError, each naming the flag or path to change, and data::Stopped where
// stop became true while the data was indexed.
Setup prepare(const Config& config, const std::shared_ptr<comm::Communicator>& communicator = {},
              const std::atomic<bool>* stop = nullptr, const std::vector<std::string>& class_names = {});

// Throws BatchTooLarge for a run that did not get its memory although it should fit, with `what` the system
// said and the largest --batch-size that fits what is free now.
[[noreturn]] void refuse_batch(const Setup& setup, const std::string& what);

// The batches of a prepared run. The second is empty when there is nothing held out.
std::unique_ptr<data::BatchSource> train_batches(const Setup& setup);
std::unique_ptr<data::BatchSource> val_batches(const Setup& setup);

}  // namespace redline::train
