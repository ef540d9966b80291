// The StateCopy of a State in main memory: its tensors, read one by one.
#pragma once

#include <algorithm>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"

namespace redline::backend {

class PlainCopy final : public StateCopy {
 public:
  explicit PlainCopy(const State& state) : state_(state) {
    for (const std::string& name : state.names())
      values_[name].resize(static_cast<std::size_t>(state.tensor(name).shape.elements()));
  }
  void take() override {
    for (auto& [name, values] : values_) state_.read(name, values);
  }
  void read(const std::string& name, std::span<float> values) const override {
    std::ranges::copy(values_.at(name), values.begin());
  }

 private:
  const State& state_;
  std::map<std::string, std::vector<float>> values_;
};

}  // namespace redline::backend
