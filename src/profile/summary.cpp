#include "profile/summary.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <unordered_map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/quantity.h"
#include "base/statistics.h"
#include "base/text.h"

namespace redline::profile {
namespace {

using backend::Activity;
using graph::Op;

double seconds_of(const Activity& activity) {
  return 1e-9 * static_cast<double>(activity.end - activity.begin);
}

// Parts by name, in order of first appearance until sorted.
class Parts {
 public:
  Part& of(const std::string& name) {
    const auto [at, added] = index_.try_emplace(name, parts_.size());
    if (added) parts_.emplace_back().name = name;
    return parts_[at->second];
  }
  std::vector<Part> slowest_first() && {
    std::ranges::stable_sort(parts_, std::ranges::greater{}, &Part::seconds);
    return std::move(parts_);
  }

 private:
  std::map<std::string, std::size_t> index_;
  std::vector<Part> parts_;
};

// What is known about an op with events in the timeline, and about the ops fused with it.
struct KnownOp {
  std::string name, kind;  // of the parts that it belongs to
  plan::Work work;         // per step
  bool activations = false;
};

bool has_activations(const graph::Graph& graph, const Op& op) {
  const auto feature_map = [&](graph::TensorId id) {
    if (id == graph::kNone) return false;
    const graph::Tensor& tensor = graph.tensor(id);
    return tensor.kind == graph::TensorKind::activation && tensor.shape.rank() == 4;
  };
  return std::ranges::any_of(op.inputs, feature_map) || std::ranges::any_of(op.outputs, feature_map);
}

std::unordered_map<const Op*, KnownOp> known_ops(const std::vector<PlanRuns>& plans, double steps) {
  std::unordered_map<const Op*, KnownOp> known;
  for (const PlanRuns& runs : plans) {
    const graph::Graph& graph = runs.plan->graph();
    const std::vector<plan::Work> work = plan::work_of(*runs.plan, runs.plan->groups);
    for (std::size_t i = 0; i < work.size(); ++i) {
      const plan::Group& group = runs.plan->groups[i];
      const Op& op = graph.ops()[static_cast<std::size_t>(plan::lead_of(graph, group))];
      const std::string others = plan::others_text(graph, group);
      const bool update = static_cast<int>(i) >= runs.plan->update_begin;
      const double times = static_cast<double>(update ? runs.updates : runs.batches) / steps;
      known[&op] = {plan::updates_many(graph, group) ? fmt::format("{} of every parameter", name_of(op.kind))
                                                     : label_of(op) + others,
                    std::string(name_of(op.kind)) + others,
                    {work[i].flops * times, work[i].bytes * times},
                    has_activations(graph, op)};
    }
  }
  return known;
}

void add_roof(Part& part, const plan::Work& work, const Ceilings& ceilings) {
  part.flops += work.flops;
  part.bytes += work.bytes;
  part.least += ceilings.least_seconds(work.flops, work.bytes);
  part.memory_bound = ceilings.memory_bounds(part.flops, part.bytes);
}

void count_events(const Timeline& timeline, const std::vector<PlanRuns>& plans, const Ceilings& ceilings,
                  Summary& summary) {
  Parts ops, layers, kinds, kernels;
  const double steps = std::max<double>(1, static_cast<double>(timeline.steps.size()));
  const auto known = known_ops(plans, steps);
  std::set<const Op*> ran;
  double named = 0, all = 0;
  for (const DeviceEvent& event : timeline.events) {
    const Activity& activity = event.activity;
    const double seconds = seconds_of(activity) / steps;
    const auto add = [&](Part& part) {
      part.count += 1 / steps;
      part.seconds += seconds;
    };
    all += seconds;
    add(kernels.of(activity.name == nullptr ? label_of(activity) : *activity.name));
    if (activity.op == nullptr) {
      add(ops.of(label_of(activity)));
      add(kinds.of("(" + label_of(activity) + ")"));
      add(layers.of("(no layer)"));
      continue;
    }
    const std::string kind(graph::name_of(activity.op->kind));
    const auto found = known.find(activity.op);  // missing for an evaluation between the steps
    const KnownOp op = found == known.end() ? KnownOp{label_of(activity), kind, {}, false} : found->second;
    Part &own = ops.of(op.name), &same = kinds.of(op.kind);
    own.kind = same.kind = kind;
    const bool first = ran.insert(activity.op).second;
    for (Part* part : {&own, &same, &layers.of(activity.op->name)}) {
      add(*part);
      part->activations |= op.activations;
      if (first) add_roof(*part, op.work, ceilings);
    }
    named += seconds;
  }
  summary.named = all > 0 ? named / all : 0;
  summary.ops = std::move(ops).slowest_first();
  summary.layers = std::move(layers).slowest_first();
  summary.kinds = std::move(kinds).slowest_first();
  summary.kernels = std::move(kernels).slowest_first();
}

std::vector<double> thread_shares(const Timeline& timeline) {
  std::map<std::uint32_t, std::pair<double, double>> counts;  // busy, all
  for (const Activity& sample : timeline.samples) {
    auto& [busy, all] = counts[sample.stream];
    busy += sample.kind == Activity::Kind::busy ? 1 : 0;
    all += 1;
  }
  std::vector<double> shares;
  for (const auto& [thread, count] : counts) shares.push_back(count.first / count.second);
  return shares;
}

// "recording costs 1.8% of a step (95%: +1.2% to +2.4%, 8 pairs of windows)"
std::string tracing_text(const TracingCost& cost) {
  const ConfidenceInterval& interval = cost.change.interval;
  const std::string range = fmt::format(
      "(95%: {}% to {}%, {} of windows)", format_signed(100 * interval.low, 1),
      format_signed(100 * interval.high, 1), counted(static_cast<std::int64_t>(cost.pairs), "pair"));
  if (!cost.change.beyond_noise())
    return fmt::format("the cost of recording is within the noise {}\n", range);
  return fmt::format("recording makes a step {:.1f}% {} {}\n", 100 * std::abs(cost.change.change),
                     cost.change.change < 0 ? "shorter" : "longer", range);
}

}  // namespace

std::string milliseconds(double seconds) { return fmt::format("{:.2f} ms", 1e3 * seconds); }

Summary summarize(const Timeline& timeline, const std::vector<PlanRuns>& plans, const Ceilings& ceilings,
                  const TelemetrySummary& telemetry, const RunFacts& run) {
  Summary summary;
  summary.first_step = timeline.steps.empty() ? 0 : timeline.steps.front().number;
  summary.steps = static_cast<std::int64_t>(timeline.steps.size());
  summary.iteration_seconds = timeline.iteration_seconds();
  summary.elapsed = 1e-9 * static_cast<double>(timeline.end() - timeline.begin());
  summary.busy = 1e-9 * static_cast<double>(busy_time(timeline));
  const ExposedTime communication = communication_time(timeline);
  summary.communication = 1e-9 * static_cast<double>(communication.total);
  summary.exposed = 1e-9 * static_cast<double>(communication.exposed);
  summary.copies_exposed = 1e-9 * static_cast<double>(copy_time(timeline).exposed);
  for (const Gap& gap : find_gaps(timeline))
    summary.gap_seconds[static_cast<std::size_t>(gap.cause)] +=
        1e-9 * static_cast<double>(gap.end - gap.begin);
  summary.telemetry = telemetry;
  summary.dropped = timeline.dropped;
  summary.threads = thread_shares(timeline);
  count_events(timeline, plans, ceilings, summary);
  // Arithmetic can do at least what an op reached. An op may pass the memory's ceiling: its bytes may be
  // cached.
  summary.ceilings = ceilings;
  for (const Part& op : summary.ops)
    if (op.seconds > 0) summary.ceilings.flops = std::max(summary.ceilings.flops, op.flops / op.seconds);
  if (summary.ceilings.flops > ceilings.flops) count_events(timeline, plans, summary.ceilings, summary);
  find_losses(summary, timeline.host_computes, run);
  return summary;
}

std::string summary_text(const Summary& s, std::size_t rows) {
  const std::string steps_text =
      s.steps == 1 ? fmt::format("step {}", s.first_step)
                   : fmt::format("steps {} to {}", s.first_step, s.first_step + s.steps - 1);
  std::string text =
      fmt::format("{}: {} a step on average, the device busy {:.1f}% of the time\n", steps_text,
                  s.steps > 0 ? milliseconds(s.step()) : "-", 100 * s.utilisation());
  if (s.tracing.change.interval.coverage > 0) text += tracing_text(s.tracing);
  if (s.untraced > 0)
    text += fmt::format("{} left out: the limit on records was reached\n",
                        counted(s.untraced, "more step") + (s.untraced == 1 ? " was" : " were"));
  if (s.dropped > 0)
    text += fmt::format("the device lost {}\n", counted(static_cast<std::int64_t>(s.dropped), "record"));
  const double steps = std::max<double>(1, static_cast<double>(s.steps));
  text += "idle:";
  for (int i = 0; i < 4; ++i)
    text += fmt::format(" {} {:.1f}%{}", name_of(static_cast<GapCause>(i)),
                        s.elapsed > 0 ? 100 * s.gap_seconds[i] / s.elapsed : 0.0, i < 3 ? "," : "\n");
  if (!s.threads.empty()) {
    text += "threads computing:";
    for (const double share : s.threads) text += fmt::format(" {:.0f}%", 100 * share);
    text += "\n";
  }
  if (s.communication > 0)
    text += fmt::format(
        "gradients were exchanged in {:.1f}% of the time, not overlapped with computation in {:.1f}%\n",
        100 * s.communication / s.elapsed, 100 * s.exposed / s.elapsed);
  text += fmt::format("ceilings measured: {}, {}\n", format_count(s.ceilings.flops, "FLOP/s"),
                      format_count(s.ceilings.bytes, "B/s"));
  if (!s.bound.empty()) text += s.bound + "\n";
  const auto table = [&](const char* title, const std::vector<Part>& parts) {
    text += fmt::format("\n{:>12} {:>6} {:>7} {:>9} {:>8} {:>6}  {}\n", "mean ms/step", "share", "count",
                        "GFLOP/s", "GB/s", "roof", title);
    for (std::size_t i = 0; i < std::min(rows, parts.size()); ++i) {
      const Part& p = parts[i];
      const auto rate = [&](double work) {
        return work > 0 && p.seconds > 0 ? fmt::format("{:.1f}", work / p.seconds / 1e9) : std::string("-");
      };
      text += fmt::format("{:>12.3f} {:>5.1f}% {:>7.6g} {:>9} {:>8} {:>6}  {}\n", 1e3 * p.seconds,
                          s.elapsed > 0 ? 100 * p.seconds * steps / s.elapsed : 0.0, p.count, rate(p.flops),
                          rate(p.bytes), p.least > 0 ? fmt::format("{:.0f}%", 100 * p.of_ceiling()) : "-",
                          p.name);
    }
  };
  table("kind of op", s.kinds);
  table("op", s.ops);
  if (!s.losses.empty()) text += "\nthe largest losses:\n";
  for (std::size_t i = 0; i < s.losses.size(); ++i) {
    text += fmt::format("{}. {}: {} a step\n", i + 1, s.losses[i].what, milliseconds(s.losses[i].seconds));
    if (!s.losses[i].advice.empty()) text += fmt::format("   try {}\n", s.losses[i].advice);
  }
  return text;
}

namespace {

nlohmann::ordered_json to_json(const std::vector<Part>& parts, std::size_t most) {
  auto list = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < std::min(most, parts.size()); ++i) {
    const Part& p = parts[i];
    nlohmann::ordered_json json = {{"name", p.name}, {"count", p.count}, {"seconds", p.seconds}};
    if (!p.kind.empty()) json["kind"] = p.kind;
    if (p.least > 0) {
      json["flops"] = p.flops;
      json["bytes"] = p.bytes;
      json["least_seconds"] = p.least;
      json["bound"] = p.memory_bound ? "memory" : "compute";
    }
    list.push_back(std::move(json));
  }
  return list;
}

}  // namespace

nlohmann::ordered_json to_json(const Summary& s) {
  nlohmann::ordered_json json = {
      {"first_step", s.first_step},
      {"steps", s.steps},
      {"steps_left_out", s.untraced},
      {"records_lost", s.dropped},
      {"iteration_seconds", s.iteration_seconds},
      {"iterations_include", {{"data", true}, {"optimizer", true}, {"synchronised", true}}},
      {"elapsed_seconds", s.elapsed},
      {"busy_seconds", s.busy},
      {"utilisation", s.utilisation()},
      {"named_share", s.named},
      {"communication_seconds", s.communication},
      {"communication_exposed_seconds", s.exposed},
      {"copies_exposed_seconds", s.copies_exposed},
      {"tracing",
       {{"pairs", s.tracing.pairs},
        {"untraced_step_seconds", s.tracing.untraced_step},
        {"traced_step_seconds", s.tracing.traced_step},
        {"overhead", s.tracing.change.change},
        {"measurable", s.tracing.change.beyond_noise()}}},
      {"ceilings", {{"flops_per_second", s.ceilings.flops}, {"bytes_per_second", s.ceilings.bytes}}}};
  if (const ConfidenceInterval& interval = s.tracing.change.interval; interval.coverage > 0)
    json["tracing"]["interval"] = {
        {"low", interval.low}, {"high", interval.high}, {"coverage", interval.coverage}};
  if (!s.bound.empty()) json["bound"] = s.bound;
  for (int i = 0; i < 4; ++i) json["gap_seconds"][name_of(static_cast<GapCause>(i))] = s.gap_seconds[i];
  json["threads_computing"] = s.threads;
  constexpr std::size_t kMost = 1000;  // there is no natural bound on kernel names
  json["kinds"] = to_json(s.kinds, kMost);
  json["layers"] = to_json(s.layers, kMost);
  json["ops"] = to_json(s.ops, kMost);
  json["kernels"] = to_json(s.kernels, kMost);
  json["losses"] = nlohmann::ordered_json::array();
  for (const Loss& loss : s.losses) {
    json["losses"].push_back({{"what", loss.what}, {"seconds", loss.seconds}});
    if (!loss.advice.empty()) json["losses"].back()["try"] = loss.advice;
  }
  return json;
}

}  // namespace redline::profile
