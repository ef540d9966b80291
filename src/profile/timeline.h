// The timeline of some training steps: what device and host did, and in which step. Everything in a profile
// is computed from it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backend/tracer.h"
#include "graph/graph.h"

namespace redline::profile {

// What the training thread did. Times as in backend::Activity.
enum class HostWork : std::uint8_t { data, inputs, launch, read };
const char* name_of(HostWork work);

struct HostSpan {
  HostWork work = HostWork::data;
  std::int64_t begin = 0, end = 0;
};

struct StepSpan {
  std::int64_t number = 0;          // updates done, this one included
  std::int64_t begin = 0, end = 0;  // on the host: from the start of this step to that of the next
  // From the start of its first op to the end of its last, without copies before or after them; same as above
  // where the host computes.
  std::int64_t device_begin = 0, device_end = 0;
};

struct DeviceEvent {
  backend::Activity activity;
  int step = -1;  // index into Timeline::steps; -1: in no step
  int lane = 0;   // the row it is drawn in: events of a lane do not overlap
};

struct Timeline {
  std::vector<StepSpan> steps;             // ascending
  std::vector<DeviceEvent> events;         // on the device, sorted by begin
  std::vector<backend::Activity> calls;    // sorted by begin
  std::vector<backend::Activity> samples;  // of host threads, where the host computes
  std::vector<HostSpan> host;
  bool host_computes = false;  // the device is the CPU
  std::uint64_t dropped = 0;   // records that the device could not keep

  std::int64_t begin() const { return steps.empty() ? 0 : steps.front().device_begin; }
  std::int64_t end() const { return steps.empty() ? 0 : steps.back().device_end; }
  // Seconds of each step on the device, from the end of the one before; the first from its own start.
  std::vector<double> iteration_seconds() const;
};

// The step that was running on the host at a moment, as an index into `steps`; -1: none.
int step_at(const std::vector<StepSpan>& steps, std::int64_t moment);

// Builds a timeline from records. A device event belongs to the step in which the host call that started it
// was made. Overlapping events get different lanes. Ops use as few lanes as possible, since the branches of a
// graph run in dozens of streams; every other stream has its own.
Timeline make_timeline(std::vector<backend::Activity> records, std::vector<StepSpan> steps,
                       std::vector<HostSpan> host, bool host_computes);

// Why a device was idle.
enum class GapCause : std::uint8_t {
  input,          // the host waited for data
  launch,         // work was on its way: a launch, or the switch from one kernel to the next
  communication,  // around the gradient exchange
  host            // the host did something else
};
const char* name_of(GapCause cause);

struct Gap {
  std::int64_t begin = 0, end = 0;
  GapCause cause = GapCause::host;
};

// Idle times of the device within the steps, each with its cause.
std::vector<Gap> find_gaps(const Timeline& timeline);
// Nanoseconds in which at least one event ran.
std::int64_t busy_time(const Timeline& timeline);

// Nanoseconds in which something ran, and how many of them were not overlapped with computation.
struct ExposedTime {
  std::int64_t total = 0, exposed = 0;
};
ExposedTime communication_time(const Timeline& timeline);  // of the gradient exchange
ExposedTime copy_time(const Timeline& timeline);           // of copies

std::string label_of(const graph::Op& op);  // "conv layer1.0.conv1"
// Without an op, the activity's name; for kernels without namespaces, arguments and "_kernel": "clears".
std::string label_of(const backend::Activity& activity);
bool is_communication(const backend::Activity& activity);

}  // namespace redline::profile
