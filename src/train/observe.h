// What a run records besides its numbers: training images, histograms of weights and gradients, and its
// options as a list.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/backend.h"
#include "data/batch_source.h"
#include "metrics/recorder.h"
#include "train/config.h"

namespace redline::train {

// The first images of a batch as the network will see them, side by side in one picture.
metrics::Picture batch_picture(const data::Batch& batch, int batch_size, int image_size, std::int64_t step);

// Histograms of every parameter, "weights/<name>", and of the gradients of the last step, "gradients/<name>".
// Gradients are multiplied by `gradient_scale` first, to undo the loss scale and accumulation. Slow, as it
// reads all of them from the device.
void record_histograms(const backend::State& state, const backend::Executable& executable,
                       double gradient_scale, std::int64_t step, metrics::Recorder& recorder);

// Every option that has a value and affects training, by its path in the file: "optimizer.lr".
std::vector<metrics::Hyperparameter> hyperparameters(const Config& config);

}  // namespace redline::train
