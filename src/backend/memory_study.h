// Methods of moving bytes, to be timed: between host and device, and within the memory that a device computes
// in. `redline bench memory` measures them, and `redline bench op` compares ops with a plain copy.
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
  int threads = 1;   // of the host, that take part
  // Bytes that must move for each byte of the size: a copy within one memory reads one and writes one.
  double traffic = 1;
  bool plain = false;  // a plain copy, with which the others of its group are compared
};

// A method with all that it needs for one size. One thread drives it.
class MemoryMove {
 public:
  virtual ~MemoryMove() = default;
  // Does it `rounds` times, one after the other; gives the seconds they took together. What must be put back
  // between rounds is not counted.
  virtual double run(int rounds) = 0;
  // The same, but the seconds of each round, taken as Executable::run takes the times of ops.
  virtual std::vector<double> run_each(int rounds) {
    std::vector<double> seconds;
    for (int round = 0; round < rounds; ++round) seconds.push_back(run(1));
    return seconds;
  }
  // Words that are not where the rounds so far must have put them.
  virtual std::size_t wrong_words() = 0;
};

class MemoryStudy {
 public:
  virtual ~MemoryStudy() = default;
  virtual const std::vector<MemoryMethod>& methods() const = 0;
  // methods()[method]; `bytes` is a multiple of kMemoryStep. Throws UnavailableError, with why, for what this
  // device does not do or has no memory for. The study must outlive what it gives.
  virtual std::unique_ptr<MemoryMove> prepare(std::size_t method, std::size_t bytes) = 0;
  // The same for a plain copy within one memory, done as the ops of a step follow each other: a round reads
  // what the one before wrote, and writes where none has been for longer than a cache remembers.
  virtual std::unique_ptr<MemoryMove> prepare_chain(std::size_t, std::size_t) {
    throw UnavailableError("this device has no chain of copies");
  }
};

inline constexpr std::size_t kMemoryStep = 4096;

// Of "cpu", "cuda" or "cuda:N". Throws UnavailableError, with why, for a device that is not there or has
// nothing to study.
std::shared_ptr<MemoryStudy> make_memory_study(const DeviceOptions& options);

}  // namespace redline::backend
