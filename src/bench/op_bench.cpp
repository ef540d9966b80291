#include "bench/op_bench.h"

#include <algorithm>
#include <functional>
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

// Positions in the plan of one distinct op, or of ops that run together.
struct Row {
  OpTiming timing;
  std::vector<std::size_t> ops;
};

bool matches(const Op& op, const std::string& filter) {
  return name_of(op.kind).find(filter) != std::string_view::npos || op.name.find(filter) != std::string::npos;
}

// `whole` joins an optimizer's ops on all parameters into one row: a device may run them in one launch.
std::vector<Row> make_rows(const plan::Plan& plan, const std::vector<plan::Group>& groups,
                           const std::string& filter, bool whole) {
  const graph::Graph& graph = plan.graph();
  const std::vector<plan::Work> work = plan::work_of(plan, groups);
  std::vector<Row> rows;
  std::map<std::string, std::size_t> known;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const auto op_at = [&](int position) -> const Op& {
      return graph.ops()[static_cast<std::size_t>(position)];
    };
    if (std::ranges::none_of(groups[i].ops, [&](int at) { return matches(op_at(at), filter); })) continue;
    const Op& op = op_at(plan::lead_of(graph, groups[i]));
    const bool joined = whole && plan::updates_one(op.kind);
    const std::string text = joined ? fmt::format("{} of every parameter", name_of(op.kind))
                                    : describe(graph, op) + plan::others_text(graph, groups[i]);
    const auto [at, added] = known.try_emplace(text, rows.size());
    if (added) {
      Row row;
      row.timing.kind = name_of(op.kind);
      row.timing.description = text;
      row.timing.layer = op.name;
      rows.push_back(std::move(row));
    }
    Row& row = rows[at->second];
    row.ops.push_back(i);
    if (added || joined) {
      row.timing.flops += work[i].flops;
      row.timing.bytes += work[i].bytes;
    }
    row.timing.count = joined ? 1 : row.timing.count + 1;
  }
  if (rows.empty()) throw UsageError("no op of this step has '{}' in its kind or layer", filter);
  return rows;
}

// False when stopped.
bool time_alone(const graph::Graph& graph, Row& row, int repeat, backend::Backend& backend,
                const std::function<bool()>& go_on) {
  const OpCase op_case = isolate(graph, graph.ops()[row.ops.front()]);
  const auto plan = std::make_shared<plan::Plan>(plan::make_plan(op_case.graph, backend));
  const auto executable = backend.compile(plan, backend.make_state());
  fill_inputs(op_case, 1, *executable);
  const auto section = plan->update_begin == 0 ? backend::Section::update : backend::Section::compute;
  std::vector<double> times;
  for (int i = 0; i <= repeat; ++i) {
    std::vector<backend::OpTime> measured;
    executable->run(section, &measured);
    if (i > 0) times.push_back(seconds_of(measured.front()));  // the first is warm-up
    if (!go_on()) return false;
  }
  row.timing.fastest = *std::min_element(times.begin(), times.end());
  row.timing.seconds = median(std::move(times));
  return true;
}

}  // namespace

std::vector<OpTiming> bench_ops(const OpBenchOptions& options, backend::Backend& backend,
                                const Progress& progress) {
  if (options.repeat < 1) throw UsageError("--repeat {} must be at least 1", options.repeat);
  const auto plan = std::make_shared<plan::Plan>(plan::make_plan(options.plan, backend));
  // Within steps, ops are timed as the device groups them; otherwise each is isolated.
  std::vector<Row> rows = make_rows(*plan, options.in_step ? plan->groups : plan::each_alone(plan->graph()),
                                    options.filter, options.in_step);
  std::vector<OpTiming> result;
  if (options.in_step) {
    const auto times = time_ops_in_steps(options.plan, plan, backend, options.repeat, progress);
    for (Row& row : rows) {
      double sum = 0.0, fastest = 0.0;
      for (std::size_t i : row.ops) {
        sum += median(times[i]);
        fastest += *std::min_element(times[i].begin(), times[i].end());
      }
      row.timing.seconds = sum / row.timing.count;
      row.timing.fastest = fastest / row.timing.count;
      result.push_back(std::move(row.timing));
    }
  } else {
    const auto told = [&](std::size_t done) {
      return progress(static_cast<std::int64_t>(done), static_cast<std::int64_t>(rows.size()));
    };
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (!time_alone(plan->graph(), rows[i], options.repeat, backend, [&] { return told(i); })) break;
      result.push_back(std::move(rows[i].timing));
      if (!told(i + 1)) break;
    }
  }
  std::ranges::stable_sort(result, std::ranges::greater{}, &OpTiming::step_seconds);
  return result;
}

}  // namespace redline::bench
