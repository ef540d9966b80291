#include "profile/timeline.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

namespace redline::profile {
namespace {

using backend::Activity;

// Inputs are copied while earlier steps compute, so a step spans its ops, if any are known.
void place_steps(Timeline& timeline) {
  const bool any_op =
      std::ranges::any_of(timeline.events, [](const DeviceEvent& e) { return e.activity.op != nullptr; });
  for (const DeviceEvent& event : timeline.events) {
    const Activity& activity = event.activity;
    if (any_op && activity.op == nullptr) continue;
    StepSpan& step = timeline.steps[static_cast<std::size_t>(event.step)];
    step.device_begin = step.device_end == 0 ? activity.begin : std::min(step.device_begin, activity.begin);
    step.device_end = std::max(step.device_end, activity.end);
  }
  // A step without records has no time on the device.
  for (StepSpan& step : timeline.steps) {
    if (step.device_end == 0) step.device_begin = step.device_end = step.end;
  }
}

// "crop" of "void redline::(anonymous namespace)::crop_kernel<float>(Crop)".
std::string plain_name(const std::string& kernel) {
  constexpr std::string_view kUnnamed = "(anonymous namespace)::", kSuffix = "_kernel";
  std::string name = kernel;
  for (std::size_t at = name.find(kUnnamed); at != std::string::npos; at = name.find(kUnnamed))
    name.erase(at, kUnnamed.size());
  name.erase(std::min(name.find_first_of("<("), name.size()));
  name.erase(0, name.find_last_of(" :") + 1);
  if (name.ends_with(kSuffix)) name.resize(name.size() - kSuffix.size());
  return name.empty() ? kernel : name;
}

void give_lanes(std::vector<DeviceEvent>& events) {
  struct Lane {
    int number;
    std::int64_t end;  // of its last event
  };
  constexpr std::int64_t kOps = -1;
  std::map<std::int64_t, std::vector<Lane>> lanes;  // by stream, or for ops
  int next = 0;
  for (const DeviceEvent& event : events) next = std::max(next, static_cast<int>(event.activity.stream) + 1);
  std::set<int> taken;
  for (DeviceEvent& event : events) {  // by begin
    const Activity& activity = event.activity;
    auto& own = lanes[activity.op != nullptr ? kOps : std::int64_t{activity.stream}];
    auto free = std::ranges::find_if(own, [&](const Lane& lane) { return lane.end <= activity.begin; });
    if (free == own.end()) {
      const auto stream = static_cast<int>(activity.stream);
      own.push_back({own.empty() && taken.insert(stream).second ? stream : next++, 0});
      free = std::prev(own.end());
    }
    free->end = activity.end;
    event.lane = free->number;
  }
}

// Nanoseconds that [begin, end) shares with the spans of a kind of work.
std::int64_t shared(const std::vector<HostSpan>& host, HostWork work, std::int64_t begin, std::int64_t end) {
  std::int64_t sum = 0;
  auto span = std::ranges::lower_bound(host, begin, {}, [](const HostSpan& s) { return s.end; });
  for (; span != host.end() && span->begin < end; ++span) {
    if (span->work == work) sum += std::min(end, span->end) - std::max(begin, span->begin);
  }
  return sum;
}

GapCause cause_of(const Timeline& timeline, const DeviceEvent* before, const DeviceEvent& after,
                  std::optional<std::int64_t> called, std::int64_t begin, std::int64_t end) {
  if (is_communication(after.activity) || (before != nullptr && is_communication(before->activity)))
    return GapCause::communication;
  // An event already queued does not wait for what the host is doing by then.
  if (called && *called < begin) return GapCause::launch;
  const std::int64_t length = end - begin;
  if (2 * shared(timeline.host, HostWork::data, begin, end) > length) return GapCause::input;
  const std::int64_t launching = shared(timeline.host, HostWork::launch, begin, end) +
                                 shared(timeline.host, HostWork::inputs, begin, end);
  return 2 * launching > length ? GapCause::launch : GapCause::host;
}

struct Piece {
  std::int64_t begin = 0, end = 0;
};

// Times within the steps in which something of a kind ran, as disjoint intervals.
template <typename Wanted>
std::vector<Piece> pieces(const Timeline& timeline, Wanted wanted) {
  std::vector<Piece> list;
  for (const DeviceEvent& event : timeline.events) {  // by begin
    const std::int64_t begin = std::max(timeline.begin(), event.activity.begin);
    const std::int64_t end = std::min(timeline.end(), event.activity.end);
    if (end <= begin || !wanted(event.activity)) continue;
    if (list.empty() || list.back().end < begin)
      list.push_back({begin, end});
    else
      list.back().end = std::max(list.back().end, end);
  }
  return list;
}

template <typename Wanted>
ExposedTime exposed_time(const Timeline& timeline, Wanted wanted) {
  const auto computing = pieces(timeline, [](const Activity& activity) {
    return activity.kind == Activity::Kind::kernel && !is_communication(activity);
  });
  ExposedTime time;
  auto other = computing.begin();
  for (const Piece& piece : pieces(timeline, wanted)) {
    time.total += piece.end - piece.begin;
    time.exposed += piece.end - piece.begin;
    while (other != computing.end() && other->end <= piece.begin) ++other;
    for (auto work = other; work != computing.end() && work->begin < piece.end; ++work)
      time.exposed -= std::min(piece.end, work->end) - std::max(piece.begin, work->begin);
  }
  return time;
}

}  // namespace

const char* name_of(HostWork work) {
  constexpr const char* kNames[] = {"data", "inputs", "launch", "read"};
  return kNames[static_cast<std::size_t>(work)];
}

const char* name_of(GapCause cause) {
  constexpr const char* kNames[] = {"input", "launch", "communication", "host"};
  return kNames[static_cast<std::size_t>(cause)];
}

int step_at(const std::vector<StepSpan>& steps, std::int64_t moment) {
  const auto after =
      std::ranges::upper_bound(steps, moment, {}, [](const StepSpan& step) { return step.begin; });
  if (after == steps.begin()) return -1;
  const auto found = std::prev(after);
  return moment < found->end ? static_cast<int>(found - steps.begin()) : -1;
}

std::vector<double> Timeline::iteration_seconds() const {
  std::vector<double> seconds;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const std::int64_t from = i == 0 ? steps[i].device_begin : steps[i - 1].device_end;
    seconds.push_back(1e-9 * static_cast<double>(steps[i].device_end - from));
  }
  return seconds;
}

Timeline make_timeline(std::vector<Activity> records, std::vector<StepSpan> steps, std::vector<HostSpan> host,
                       bool host_computes) {
  Timeline timeline;
  timeline.host_computes = host_computes;
  timeline.steps = std::move(steps);
  timeline.host = std::move(host);
  std::unordered_map<std::uint32_t, std::int64_t> called;  // time of each call, by correlation
  std::ranges::stable_sort(records, {}, &Activity::begin);
  for (const Activity& record : records) {
    if (record.kind != Activity::Kind::call) continue;
    timeline.calls.push_back(record);
    if (record.correlation != 0) called.emplace(record.correlation, record.begin);
  }
  std::erase_if(timeline.calls,
                [&](const Activity& call) { return step_at(timeline.steps, call.begin) < 0; });
  for (StepSpan& step : timeline.steps) {
    step.device_begin = host_computes ? step.begin : 0;
    step.device_end = host_computes ? step.end : 0;
  }
  for (const Activity& record : records) {
    if (record.kind == Activity::Kind::busy || record.kind == Activity::Kind::waiting) {
      if (step_at(timeline.steps, record.begin) >= 0) timeline.samples.push_back(record);
    }
    if (!record.on_device()) continue;
    DeviceEvent event{record, -1, 0};
    if (host_computes) {
      event.step = step_at(timeline.steps, record.begin);
    } else if (const auto call = called.find(record.correlation); call != called.end()) {
      event.step = step_at(timeline.steps, call->second);
    }
    if (event.step < 0) continue;  // in a step outside the window
    timeline.events.push_back(event);
  }
  if (!host_computes) place_steps(timeline);
  give_lanes(timeline.events);
  return timeline;
}

std::vector<Gap> find_gaps(const Timeline& timeline) {
  std::unordered_map<std::uint32_t, std::int64_t> called;
  for (const Activity& call : timeline.calls)
    if (call.correlation != 0) called.emplace(call.correlation, call.begin);
  std::vector<Gap> gaps;
  std::int64_t at = timeline.begin();
  const DeviceEvent* before = nullptr;
  for (const DeviceEvent& event : timeline.events) {
    if (event.activity.begin >= timeline.end()) break;
    if (event.activity.begin > at) {
      const auto call = called.find(event.activity.correlation);
      std::optional<std::int64_t> moment;
      if (call != called.end()) moment = call->second;
      gaps.push_back(
          {at, event.activity.begin, cause_of(timeline, before, event, moment, at, event.activity.begin)});
    }
    if (event.activity.end > at) {
      at = event.activity.end;
      before = &event;
    }
  }
  if (timeline.end() > at && !timeline.events.empty()) {
    gaps.push_back({at, timeline.end(), GapCause::host});
  }
  return gaps;
}

std::int64_t busy_time(const Timeline& timeline) {
  std::int64_t busy = 0;
  for (const Piece& piece : pieces(timeline, [](const Activity&) { return true; }))
    busy += piece.end - piece.begin;
  return busy;
}

ExposedTime communication_time(const Timeline& timeline) { return exposed_time(timeline, is_communication); }

ExposedTime copy_time(const Timeline& timeline) {
  return exposed_time(timeline, [](const Activity& a) { return a.kind == Activity::Kind::copy; });
}

std::string label_of(const graph::Op& op) {
  return op.name.empty() ? std::string(name_of(op.kind)) : fmt::format("{} {}", name_of(op.kind), op.name);
}

std::string label_of(const Activity& activity) {
  if (activity.op != nullptr) return label_of(*activity.op);
  if (activity.name == nullptr) return "";
  return activity.kind == Activity::Kind::kernel ? plain_name(*activity.name) : *activity.name;
}

bool is_communication(const Activity& activity) {
  if (activity.op != nullptr && activity.op->kind == graph::OpKind::all_reduce) return true;
  return activity.name != nullptr && activity.name->starts_with("nccl");
}

}  // namespace redline::profile
