// A State of small tensors in ordinary memory, for tests of what is kept of it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "base/random.h"

namespace redline::train {

// As the tensors were.
class FakeCopy final : public backend::StateCopy {
 public:
  using Entries = std::map<std::string, std::pair<graph::Tensor, std::vector<float>>>;
  explicit FakeCopy(const Entries& entries) : entries_(entries) {}
  void take() override { copy_ = entries_; }
  void read(const std::string& name, std::span<float> values) const override {
    std::ranges::copy(copy_.at(name).second, values.begin());
  }

 private:
  const Entries& entries_;
  Entries copy_;
};

class FakeState final : public backend::State {
 public:
  // Filled with random values, the same for the same seed.
  explicit FakeState(std::uint64_t seed, bool averages = true, std::int64_t classes = 3) {
    Random random(seed);
    const auto add = [&](const std::string& name, graph::Shape shape, graph::TensorKind kind) {
      order_.push_back(name);
      auto& [tensor, values] = entries_[name];
      tensor = {name, shape, graph::DType::f32, kind};
      values.resize(static_cast<std::size_t>(shape.elements()));
      for (float& value : values) value = static_cast<float>(random.normal());
    };
    add("conv1.weight", {4, 3, 3, 3}, graph::TensorKind::parameter);
    add("bn1.running_mean", {4}, graph::TensorKind::statistic);
    add("fc.weight", {classes, 4}, graph::TensorKind::parameter);
    add("conv1.weight.momentum", {4, 3, 3, 3}, graph::TensorKind::momentum);
    if (!averages) return;
    add("conv1.weight.ema", {4, 3, 3, 3}, graph::TensorKind::average);
    add("bn1.running_mean.ema", {4}, graph::TensorKind::average);
    add("fc.weight.ema", {classes, 4}, graph::TensorKind::average);
  }

  std::vector<std::string> names() const override { return order_; }
  const graph::Tensor& tensor(const std::string& name) const override { return entries_.at(name).first; }
  void read(const std::string& name, std::span<float> values) const override {
    std::ranges::copy(entries_.at(name).second, values.begin());
  }
  void write(const std::string& name, std::span<const float> values) override {
    entries_.at(name).second.assign(values.begin(), values.end());
  }
  void swap(std::span<const backend::NamePair> pairs) override {
    for (const auto& [first, second] : pairs)
      std::swap(entries_.at(first).second, entries_.at(second).second);
  }
  std::unique_ptr<backend::StateCopy> make_copy() override { return std::make_unique<FakeCopy>(entries_); }
  const std::vector<float>& values(const std::string& name) const { return entries_.at(name).second; }

 private:
  std::vector<std::string> order_;
  FakeCopy::Entries entries_;
};

}  // namespace redline::train
