// Progress of reading through files once, before samples can be read: the index of a data set, or its
// unpacking.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>

#include "base/clock.h"

namespace redline::data {

// Logs every few seconds how far it is: "indexing train: 12% of 138 GiB, 0:35 left".
class PassProgress {
 public:
  // what: "indexing train"; bytes: of all files; stop: as in SourceOptions, may be empty.
  PassProgress(std::string what, std::uint64_t bytes, std::function<bool()> stop);

  // Adds to the bytes that are behind. Any thread. Throws Stopped if `stop` says so.
  void add(std::uint64_t bytes);

 private:
  const std::string what_;
  const std::uint64_t total_;
  const std::function<bool()> stop_;
  std::mutex mutex_;
  std::uint64_t done_ = 0;
  double last_ = 0;  // when it was last logged, in seconds
  Stopwatch watch_;
};

}  // namespace redline::data
