#include "bench/op_bench.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/statistics.h"
#include "bench/op_cases.h"
#include "bench/step_times.h"
#include "plan/traffic.h"

namespace redline::bench {
namespace {

using graph::Op;

// Positions in the plan of one distinct op.
struct Group {
  OpTiming timing;
  std::vector<std::size_t> ops;
};

bool is_update_of_one(graph::OpKind kind) {
  return kind == graph::OpKind::sgd || kind == graph::OpKind::lars || kind == graph::OpKind::ema;
}

// `together` makes one group of an optimizer's ops on all parameters, which a device may do in one launch.
std::vector<Group> group_ops(const graph::Graph& graph, const std::string& filter, bool together) {
  std::vector<Group> groups;
  std::map<std::string, std::size_t> known;
  for (std::size_t i = 0; i < graph.ops().size(); ++i) {
    const Op& op = graph.ops()[i];
    const std::string_view kind = name_of(op.kind);
    if (kind.find(filter) == std::string_view::npos && op.name.find(filter) == std::string::npos) continue;
    const bool joined = together && is_update_of_one(op.kind);
    const std::string text = joined ? fmt::format("{} of every parameter", kind) : describe(graph, op);
    const auto [at, added] = known.try_emplace(text, groups.size());
    if (added) {
      Group group;
      group.timing.kind = kind;
      group.timing.description = text;
      group.timing.layer = op.name;
      groups.push_back(std::move(group));
    }
    Group& group = groups[at->second];
    group.ops.push_back(i);
    if (added || joined) {
      group.timing.flops += graph::flops(graph, op);
      group.timing.bytes += plan::counted_bytes(graph, op);
    }
    group.timing.count = joined ? 1 : group.timing.count + 1;
  }
  if (groups.empty()) throw UsageError("no op of this step has '{}' in its kind or layer", filter);
  return groups;
}

void time_alone(const graph::Graph& graph, Group& group, int repeat, backend::Backend& backend) {
  const OpCase op_case = isolate(graph, graph.ops()[group.ops.front()]);
  const auto plan = std::make_shared<plan::Plan>(plan::make_plan(op_case.graph, backend));
  const auto executable = backend.compile(plan, backend.make_state());
  fill_inputs(op_case, 1, *executable);
  const auto section = plan->update_begin == 0 ? backend::Section::update : backend::Section::compute;
  std::vector<double> times;
  for (int i = 0; i <= repeat; ++i) {
    std::vector<backend::OpTime> measured;
    executable->run(section, &measured);
    if (i > 0) times.push_back(seconds_of(measured.front()));  // the first warms up
  }
  group.timing.fastest = *std::min_element(times.begin(), times.end());
  group.timing.seconds = median(std::move(times));
}

}  // namespace

std::vector<OpTiming> bench_ops(const OpBenchOptions& options, backend::Backend& backend,
                                const Progress& progress) {
  if (options.repeat < 1) throw UsageError("--repeat {} must be at least 1", options.repeat);
  const auto plan = std::make_shared<plan::Plan>(plan::make_plan(options.plan, backend));
  std::vector<Group> groups = group_ops(plan->graph(), options.filter, options.in_step);
  std::vector<OpTiming> result;
  if (options.in_step) {
    const auto times = time_ops_in_steps(options.plan, plan, backend, options.repeat, progress);
    for (Group& group : groups) {
      double sum = 0.0, fastest = 0.0;
      for (std::size_t i : group.ops) {
        sum += median(times[i]);
        fastest += *std::min_element(times[i].begin(), times[i].end());
      }
      group.timing.seconds = sum / group.timing.count;
      group.timing.fastest = fastest / group.timing.count;
      result.push_back(std::move(group.timing));
    }
  } else {
    for (std::size_t i = 0; i < groups.size(); ++i) {
      time_alone(plan->graph(), groups[i], options.repeat, backend);
      result.push_back(std::move(groups[i].timing));
      if (!progress(static_cast<std::int64_t>(i) + 1, static_cast<std::int64_t>(groups.size()))) break;
    }
  }
  std::ranges::stable_sort(result, std::ranges::greater{}, &OpTiming::step_seconds);
  return result;
}

}  // namespace redline::bench
