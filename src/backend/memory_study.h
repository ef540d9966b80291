// Methods of moving bytes, for timing: between host and device, and within a device's memory. `redline bench
// memory` measures them, and `redline bench op` compares ops with a plain copy.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/error.h"

namespace redline::backend {

enum class MemoryGroup { to_device, from_device, access };

struct MemoryMethod {
  MemoryGroup group = MemoryGroup::access;
  std::string name;  // "pinned", "strided 8"
  int threads = 1;   // of the host that copy
  // Bytes that must move for each byte of the size: a copy within one memory reads one and writes one.
  double traffic = 1;
  bool plain = false;  // a plain copy: the others of its group are compared with it
};

// A method prepared for one size. Used by one thread.
class MemoryMove {
 public:
  virtual ~MemoryMove() = default;
  // Runs `rounds` times in a row and returns the total seconds. Restoring memory between rounds does not
  // count.
  virtual double run(int rounds) = 0;
  // The same, but the seconds of each round, taken as Executable::run takes the times of ops.
  virtual std::vector<double> run_each(int rounds) {
    std::vector<double> seconds;
    for (int round = 0; round < rounds; ++round) seconds.push_back(run(1));
    return seconds;
  }
  // The number of words that are wrong after the rounds so far.
  virtual std::size_t wrong_words() = 0;
};

class MemoryStudy {
 public:
  virtual ~MemoryStudy() = default;
  virtual const std::vector<MemoryMethod>& methods() const = 0;
  // Prepares methods()[method]; `bytes` is a multiple of kMemoryStep. Throws UnavailableError, with the
  // reason, if this device does not support it or lacks the memory. The study must outlive the result.
  virtual std::unique_ptr<MemoryMove> prepare(std::size_t method, std::size_t bytes) = 0;
  // The same for a plain copy within one memory, run like consecutive ops of a step: a round reads what the
  // one before wrote, and writes to memory that is no longer in the cache.
  virtual std::unique_ptr<MemoryMove> prepare_chain(std::size_t, std::size_t) {
    throw UnavailableError("this device has no chain of copies");
  }
};

inline constexpr std::size_t kMemoryStep = 4096;

// For "cpu", "cuda" or "cuda:N". Throws UnavailableError, with the reason, for a device that is not available
// or has no study.
std::shared_ptr<MemoryStudy> make_memory_study(const DeviceOptions& options);

}  // namespace redline::backend
