// Classifies images with a trained network.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/sources/record_source.h"
#include "train/forward.h"

namespace redline::train {

struct Prediction {
  std::string image;              // its path
  std::span<const float> logits;  // by label; none for an image that could not be read
  std::string error;              // why it could not
  // What the network saw: RGB, size x size; null for an image that could not be read.
  const std::uint8_t* pixels = nullptr;
  int size = 0;
};

// A class and how likely it is by the softmax of the logits.
struct Ranked {
  std::size_t label = 0;
  double probability = 0;
};
// The `count` likeliest, or all if there are fewer; of equals, the lower label comes first.
std::vector<Ranked> likeliest(std::span<const float> logits, std::size_t count);

struct PredictionCounts {
  std::int64_t images = 0, unreadable = 0;
  bool stopped = false;  // by `stop`, before the last
};

// Calls `each` for every image, in order; its argument is valid until it returns. An image that cannot be
// read is named in the log and passed on with its error.
PredictionCounts predict(const TrainedModel& model, const ForwardOptions& options,
                         const std::shared_ptr<const data::RecordSource>& images,
                         const std::atomic<bool>& stop, const std::function<void(const Prediction&)>& each);

}  // namespace redline::train
