// A move of memory whose time is told beforehand.
#pragma once

#include <cstddef>

#include "backend/memory_study.h"

namespace redline::bench {

class FakeMove final : public backend::MemoryMove {
 public:
  FakeMove(double seconds, std::size_t wrong) : seconds_(seconds), wrong_(wrong) {}
  double run(int rounds) override { return seconds_ * rounds; }
  std::size_t wrong_words() override { return wrong_; }

 private:
  double seconds_;
  std::size_t wrong_;
};

}  // namespace redline::bench
