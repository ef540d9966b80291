// A small ResNet in training on some device, for tests that look at whole steps.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/random.h"

namespace redline::backend {

inline constexpr int kSmallBatch = 4, kSmallSize = 48, kSmallClasses = 10;

plan::Options small_resnet(graph::DType dtype);

class SmallTraining {
 public:
  // Weights are a function of the seed; so are the images, which are random bytes.
  SmallTraining(const DeviceOptions& device, const plan::Options& options, std::uint64_t seed);

  // Writes new images and these labels, one for each image of the batch, and runs one step.
  void step(const std::vector<std::int32_t>& labels = {0, 3, 7, 9});
  Metrics metrics();  // of the last step

  Backend& backend() { return *backend_; }
  State& state() { return *state_; }
  std::shared_ptr<State> shared_state() { return state_; }
  Executable& executable() { return *executable_; }
  using Values = std::map<std::string, std::vector<float>>;
  Values values() const;  // every persistent tensor

 private:
  plan::Options options_;
  std::unique_ptr<Backend> backend_;
  std::shared_ptr<State> state_;
  std::unique_ptr<Executable> executable_;
  Random random_;
  int steps_ = 0;
};

}  // namespace redline::backend
