#include "train/batch_input.h"

#include "base/error.h"

namespace redline::train {

void write_batch(backend::Executable& executable, data::Batch batch) {
  const graph::Model& model = executable.plan().model;
  const auto write = [&](graph::TensorId id, const void* data) {
    const graph::Tensor& tensor = model.graph.tensor(id);
    executable.write_input(id, data,
                           static_cast<std::size_t>(tensor.shape.elements()) * graph::size_of(tensor.dtype),
                           batch.lease);
  };
  if (batch.device_images != nullptr)
    executable.take_images(model.images, *batch.device_images);
  else
    write(model.images, batch.images);
  write(model.labels, batch.labels);
  if (model.other_labels == graph::kNone) return;
  check(batch.other_labels != nullptr, "a plan for mixed images and a batch without them");
  write(model.other_labels, batch.other_labels);
  write(model.label_weights, batch.label_weights);
}

}  // namespace redline::train
