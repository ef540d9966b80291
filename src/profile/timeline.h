// The timeline of some training steps: what the device did, what the host did, and which step each part
// belongs to. Everything that a profile shows is worked out from one of these.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backend/tracer.h"
#include "graph/graph.h"

namespace redline::profile {

// What the thread that trains was at. Times as in backend::Activity.
enum class HostWork : std::uint8_t { data, inputs, launch, read };
const char* name_of(HostWork work);

struct HostSpan {
  HostWork work = HostWork::data;
  std::int64_t begin = 0, end = 0;
};

struct StepSpan {
  std::int64_t number = 0;          // updates done, this one included
  std::int64_t begin = 0, end = 0;  // on the host: from one step's beginning to the next one's
  // From the beginning of its first op to the end of its last, copies that come before or after them left
  // out; the same as above where the host computes.
  std::int64_t device_begin = 0, device_end = 0;
};

struct DeviceEvent {
  backend::Activity activity;
  int step = -1;  // position in Timeline::steps; -1: of no step
  int lane = 0;   // the row that it is drawn on: events of one lane do not overlap
};

struct Timeline {
  std::vector<StepSpan> steps;             // rising
  std::vector<DeviceEvent> events;         // that ran on the device, by begin
  std::vector<backend::Activity> calls;    // by begin
  std::vector<backend::Activity> samples;  // of host threads, where the host computes
  std::vector<HostSpan> host;
  bool host_computes = false;  // the device is the CPU
  std::uint64_t dropped = 0;   // records that the device could not keep

  std::int64_t begin() const { return steps.empty() ? 0 : steps.front().device_begin; }
  std::int64_t end() const { return steps.empty() ? 0 : steps.back().device_end; }
  // Seconds of each step, from the end of the one before on the device; the first from its own beginning.
  std::vector<double> iteration_seconds() const;
};

// The step whose time on the host holds a moment, as a position in `steps`; -1: none.
int step_at(const std::vector<StepSpan>& steps, std::int64_t moment);

// Puts records together: a device's event belongs to the step in whose time on the host the call was made
// that started it. Lanes are given so that events that overlap are drawn side by side: ops share as few as
// they can, as the branches of a graph are streams by the dozen, and each stream of other work has its own.
Timeline make_timeline(std::vector<backend::Activity> records, std::vector<StepSpan> steps,
                       std::vector<HostSpan> host, bool host_computes);

// Why a device had nothing to do.
enum class GapCause : std::uint8_t {
  input,          // the host waited for data
  launch,         // work was on its way: launching, or from one kernel to the next
  communication,  // around the gradients' exchange
  host            // the host did something else
};
const char* name_of(GapCause cause);

struct Gap {
  std::int64_t begin = 0, end = 0;
  GapCause cause = GapCause::host;
};

// Time within the steps in which nothing ran on the device, each piece with its cause.
std::vector<Gap> find_gaps(const Timeline& timeline);
// Nanoseconds in which at least one event ran.
std::int64_t busy_time(const Timeline& timeline);

// Nanoseconds in which something ran, and in how many of them nothing was computed beside it.
struct ExposedTime {
  std::int64_t total = 0, exposed = 0;
};
ExposedTime communication_time(const Timeline& timeline);  // of the exchange of gradients
ExposedTime copy_time(const Timeline& timeline);           // of copies

std::string label_of(const graph::Op& op);  // "conv layer1.0.conv1"
// What belongs to no op goes by its name, a kernel's without namespaces, arguments and "_kernel": "clears".
std::string label_of(const backend::Activity& activity);
bool is_communication(const backend::Activity& activity);

}  // namespace redline::profile
