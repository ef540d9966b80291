// A record of what a device did: the input of a timeline.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "graph/op.h"

namespace redline::backend {

// One thing that a device did, or the host for it. Times are nanoseconds of std::chrono::steady_clock.
struct Activity {
  enum class Kind : std::uint8_t {
    kernel,  // ran on the device
    copy,    // moved memory
    fill,    // set memory
    call,    // of the device's library, by a host thread
    busy,    // a sample: the thread of that number was computing then; begin and end are the same
    waiting  // a sample: it was waiting for the others
  };
  Kind kind = Kind::kernel;
  const std::string* name = nullptr;  // lives as long as the tracer that recorded it
  std::int64_t begin = 0, end = 0;
  const graph::Op* op = nullptr;  // of the plan that it belongs to; null when there is none
  std::uint32_t stream = 0;       // thread, for calls and samples
  std::uint32_t context = 0, device = 0;
  std::uint32_t correlation = 0;  // the same for a call and for what it started; 0: none
  std::array<std::int32_t, 3> grid{}, block{};
  std::int32_t registers = 0, static_shared = 0, dynamic_shared = 0;  // a thread; bytes of a block
  std::uint64_t bytes = 0;                                            // of copies and fills
  const char* from = "";  // of copies: "Pageable", "Pinned", "Device"
  const char* to = "";

  bool on_device() const { return kind == Kind::kernel || kind == Kind::copy || kind == Kind::fill; }
};

// What the device's counters said about one kernel.
struct KernelCounts {
  std::string name;
  const graph::Op* op = nullptr;  // that launched it; null when that is not known
  std::vector<double> values;     // by requested metric; NaN for one that this device lacks
};

// Records between start() and stop(), and costs nothing otherwise. It knows the ops of plans that were
// compiled after it was made. Used by one thread.
class Tracer {
 public:
  virtual ~Tracer() = default;
  // Whether it records kernels; if not, an Executable's op times are the timeline.
  virtual bool sees_kernels() const = 0;
  virtual void start() = 0;
  virtual void stop() = 0;                   // waits until the device has done all it was given
  virtual std::size_t count() const = 0;     // records so far: whether it is time to stop
  virtual std::vector<Activity> take() = 0;  // all of them, after stop()
  // Runs a section of a compiled plan, with every kernel alone and repeated until all `metrics` are counted
  // (memory is restored before each repeat, so the result is that of one run). Throws UnavailableError, with
  // the setting to change, if counting is not permitted. Not between start() and stop().
  virtual std::vector<KernelCounts> count(Executable&, Section, const std::vector<std::string>& /*metrics*/) {
    throw UnavailableError("this device has no counters");
  }
  virtual std::uint64_t dropped() const = 0;  // that the device could not keep
};

}  // namespace redline::backend
