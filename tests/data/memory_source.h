// A record source for tests of what reads one.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "data/pictures.h"
#include "data/sources/record_source.h"

namespace redline::data {

// Samples in memory; the label of sample i is i, so that a batch tells which samples it holds.
class MemorySource final : public RecordSource {
 public:
  explicit MemorySource(int count) {
    for (int i = 0; i < count; ++i) {
      classes_.push_back(std::to_string(i));
      images_.push_back(gradient_jpeg(20 + i % 7, 20 + i % 5));
    }
  }
  void replace(int index, std::vector<std::uint8_t> bytes) {
    images_[static_cast<std::size_t>(index)] = std::move(bytes);
  }
  void damage(int index) { images_[static_cast<std::size_t>(index)].resize(100); }

  const std::vector<std::uint8_t>& bytes(int index) const { return images_[static_cast<std::size_t>(index)]; }

  std::int64_t count() const override { return static_cast<std::int64_t>(images_.size()); }
  std::int32_t label(std::int64_t index) const override { return static_cast<std::int32_t>(index); }
  std::string name(std::int64_t index) const override { return "sample " + std::to_string(index); }
  const std::vector<std::string>& classes() const override { return classes_; }
  const char* kind() const override { return "memory"; }
  std::span<const std::uint8_t> read(std::int64_t index, FileBytes&) const override {
    ++reads;
    std::this_thread::sleep_for(read_time);
    return images_[static_cast<std::size_t>(index)];
  }

  mutable std::atomic<int> reads{0};
  std::chrono::milliseconds read_time{0};  // of one sample; set before it is read

 private:
  std::vector<std::string> classes_;
  std::vector<std::vector<std::uint8_t>> images_;
};

}  // namespace redline::data
