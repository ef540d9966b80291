// What a run needs before its first step, opened and checked: the device, the data, the element type, the
// plans of training and evaluation, and whether all of it fits into memory. Nothing is written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "backend/backend.h"
#include "base/machine.h"
#include "data/batch_source.h"
#include "data/record_source.h"
#include "plan/plan.h"
#include "train/config.h"

namespace redline::train {

// The two plans of a run. They share the weights.
struct Plans {
  std::shared_ptr<const plan::Plan> train, eval;
};

// What the planner is asked for. `batch` is in images; evaluation takes the plain cross-entropy.
plan::Options train_plan_options(const Config& config, graph::DType dtype, std::int64_t classes,
                                 std::int64_t batch);
plan::Options eval_plan_options(const Config& config, graph::DType dtype, std::int64_t classes,
                                std::int64_t batch);

Plans make_plans(const Config& config, const plan::Capabilities& backend, graph::DType dtype,
                 std::int64_t classes, std::int64_t batch);

// Bytes that a run takes on the host or device: both plans, weights once, a kernel's copies of the weights,
// and the loader's batches.
std::size_t memory_need(const Plans& plans);

// Throws UsageError when the run needs more than `available` bytes, naming both and the largest --batch-size
// that fits.
void check_memory(const Config& config, const plan::Capabilities& backend, graph::DType dtype,
                  std::int64_t classes, const Plans& plans, std::uint64_t available);

// The element type that --dtype and --amp mean on this device. Throws UnavailableError when it has no such
// type.
graph::DType resolve_dtype(const Config& config, const backend::Backend& backend,
                           const CpuFeatures& features);

// Who decodes training images: a device's decoder, or empty for the CPU. Throws UnavailableError when
// --decode gpu cannot be had; auto says why in the log.
std::shared_ptr<backend::ImageDecoder> resolve_decoder(const Config& config, backend::Backend& backend);

struct Setup {
  Config config;  // resolved: classes, type, length and workers are set
  Machine machine;
  std::unique_ptr<backend::Backend> backend;
  graph::DType dtype = graph::DType::f32;
  std::int64_t classes = 0;
  std::shared_ptr<const data::RecordSource> train_records, val_records;  // both empty for synthetic data
  Plans plans;
  std::shared_ptr<backend::ImageDecoder> decoder;  // of training images; empty: the CPU decodes them

  bool synthetic() const { return train_records == nullptr; }
  std::string data_text() const;  // for people: path and kind
};

// Throws UsageError, DataError or UnavailableError, each naming the flag or path to change.
Setup prepare(const Config& config);

// The batches of a prepared run. The second is empty when there is nothing held out.
std::unique_ptr<data::BatchSource> train_batches(const Setup& setup);
std::unique_ptr<data::BatchSource> val_batches(const Setup& setup);

}  // namespace redline::train
