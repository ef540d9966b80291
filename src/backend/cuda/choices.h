// What was found fastest by timing, by key, remembered on disk so that a second start need not time again.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>

namespace redline::backend::cuda {

// Threads may share it.
class Choices {
 public:
  // `file` need not exist; empty: nothing is remembered beyond this process.
  explicit Choices(std::string file);

  std::int64_t find(const std::string& key) const;  // -1 when unknown
  void put(const std::string& key, std::int64_t choice);
  // Writes what is new. Best effort: a cache that cannot be written costs time, not the run.
  void save();

 private:
  std::string file_;
  mutable std::mutex mutex_;
  std::map<std::string, std::int64_t> choices_;
  bool changed_ = false;
};

}  // namespace redline::backend::cuda
