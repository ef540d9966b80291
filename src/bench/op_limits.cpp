#include "bench/op_limits.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/statistics.h"
#include "base/text.h"

namespace redline::bench {
namespace {

using backend::MemoryGroup;
using backend::MemoryMethod;

// Plain copies within the device's memory, by as many threads as the study offers.
std::vector<std::size_t> best_copies(const std::vector<MemoryMethod>& methods) {
  int threads = 0;
  std::vector<std::size_t> best;
  for (std::size_t i = 0; i < methods.size(); ++i) {
    if (!methods[i].plain || methods[i].group != MemoryGroup::access || methods[i].threads < threads)
      continue;
    if (methods[i].threads > threads) best.clear();
    threads = methods[i].threads;
    best.push_back(i);
  }
  return best;
}

MemoryTiming time_copy(backend::MemoryStudy& study, std::size_t method, std::size_t bytes, int repeat,
                       bool in_step) {
  MemoryTiming timing;
  timing.method = study.methods()[method];
  timing.bytes = bytes;
  try {
    const auto move = in_step ? study.prepare_chain(method, bytes) : study.prepare(method, bytes);
    move->run_each(1);  // warm-up
    timing.seconds = move->run_each(repeat);
    check_words(*move, timing);
  } catch (const UnavailableError& why) {
    timing.refusal = why.what();
  }
  return timing;
}

double step_seconds(const std::vector<OpTiming>& ops) {
  double total = 0;
  for (const OpTiming& op : ops) total += op.step_seconds();
  return total;
}

std::string rate(double amount, double seconds) {
  return amount > 0.0 && seconds > 0.0 ? fmt::format("{:.1f}", amount / seconds / 1e9) : "-";
}

// `least` as a percentage of `seconds`.
std::string percent(double least, double seconds) {
  return least > 0.0 && seconds > 0.0 ? fmt::format("{:.0f}%", 100 * least / seconds) : "-";
}

std::string copies_text(const std::vector<OpTiming>& ops) {
  int count = 0;
  double own = 0, copies = 0;
  for (const OpTiming& op : ops) {
    if (op.copy_seconds <= 0) continue;
    count += op.count;
    own += op.step_seconds();
    copies += op.copy_seconds * op.count;
  }
  if (count == 0) return {};
  return fmt::format(
      "memory bounds {} {}, {:.2f} ms a step; plain copies of as many bytes take {:.2f} ms, {}\n", count,
      count == 1 ? "op" : "ops", own * 1e3, copies * 1e3, percent(copies, own));
}

bool in_caches(const OpTiming& op) { return op.memory_bound && op.least_seconds > 1.005 * op.seconds; }

}  // namespace

profile::Ceilings at_least_reached(profile::Ceilings ceilings, const std::vector<OpTiming>& ops) {
  constexpr double kShortest = 20e-6;  // seconds; a GPU's events are half a microsecond apart
  if (ceilings.flops <= 0) return ceilings;
  for (const OpTiming& op : ops)
    if (op.fastest >= kShortest) ceilings.flops = std::max(ceilings.flops, op.flops / op.fastest);
  return ceilings;
}

void set_ceilings(std::vector<OpTiming>& ops, const profile::Ceilings& ceilings) {
  for (OpTiming& op : ops) {
    op.least_seconds = ceilings.least_seconds(op.flops, op.bytes);
    op.memory_bound = ceilings.memory_bounds(op.flops, op.bytes);
  }
}

std::size_t copied_bytes(double op_bytes) {
  constexpr double kPerOctave = 16;
  constexpr auto kStep = static_cast<double>(backend::kMemoryStep);
  const double half = std::max(op_bytes / 2, kStep);
  const double rounded = std::exp2(std::round(std::log2(half) * kPerOctave) / kPerOctave);
  return static_cast<std::size_t>(std::round(rounded / kStep)) * backend::kMemoryStep;
}

std::vector<MemoryTiming> time_copies(std::vector<OpTiming>& ops, backend::MemoryStudy& study, int repeat,
                                      bool in_step, const Progress& progress) {
  std::set<std::size_t> sizes;
  for (const OpTiming& op : ops)
    if (op.memory_bound) sizes.insert(copied_bytes(op.bytes));
  const std::vector<std::size_t> methods = best_copies(study.methods());
  std::set<std::size_t> refused;          // a method that refuses a size refuses larger ones too
  std::map<std::size_t, double> fastest;  // seconds by size
  std::vector<MemoryTiming> copies;
  std::int64_t done = 0;
  for (const std::size_t bytes : sizes) {
    for (const std::size_t method : methods) {
      if (refused.contains(method)) continue;
      copies.push_back(time_copy(study, method, bytes, repeat, in_step));
      if (!copies.back().measured()) {
        refused.insert(method);
        continue;
      }
      const double seconds = median(copies.back().seconds);
      const auto at = fastest.try_emplace(bytes, seconds).first;
      at->second = std::min(at->second, seconds);
    }
    if (!progress(++done, static_cast<std::int64_t>(sizes.size()))) break;
  }
  for (OpTiming& op : ops) {
    const auto copy = fastest.find(copied_bytes(op.bytes));
    if (!op.memory_bound || copy == fastest.end()) continue;
    // Corrects for rounding the size. Below a page, size says nothing about time.
    const double part = op.bytes / (2 * static_cast<double>(copy->first));
    op.copy_seconds = copy->second * std::clamp(part, 0.97, 1.03);
  }
  return copies;
}

OpLimits measure_limits(std::vector<OpTiming>& ops, const OpBenchOptions& options, backend::Backend& backend,
                        backend::MemoryStudy& study, const Progress& progress) {
  OpLimits limits;
  limits.ceilings = at_least_reached(profile::measure_ceilings(backend, options.plan.model.dtype), ops);
  set_ceilings(ops, limits.ceilings);
  limits.copies = time_copies(ops, study, options.repeat, options.in_step, progress);
  return limits;
}

std::string op_table(const std::vector<OpTiming>& ops, const OpLimits& limits,
                     const OpBenchOptions& options) {
  const double total = step_seconds(ops);
  std::string text = fmt::format("{:>9} {:>5} {:>9} {:>6} {:>8} {:>7} {:>5} {:>7}  {}\n", "ms", "count",
                                 "ms/step", "share", "GFLOP/s", "GB/s", "roof", "of copy", "op");
  for (const OpTiming& op : ops) {
    text += fmt::format("{:>9.3f} {:>5} {:>9.2f} {:>5.1f}% {:>8} {:>7} {:>5} {:>7}  {}\n", op.seconds * 1e3,
                        op.count, op.step_seconds() * 1e3, 100.0 * op.step_seconds() / total,
                        rate(op.flops, op.seconds), rate(op.bytes, op.seconds),
                        percent(op.least_seconds, op.seconds), percent(op.copy_seconds, op.seconds),
                        op.description);
  }
  text += fmt::format("{} distinct {}, {:.2f} ms a step", ops.size(), ops.size() == 1 ? "op" : "ops",
                      total * 1e3);
  if (options.filter.empty())
    text += fmt::format(", {:.1f} images/s", static_cast<double>(options.plan.model.batch) / total);
  text += "\n";
  if (limits.ceilings.bytes > 0)
    text += fmt::format("ceilings measured: {}, {}\n", format_count(limits.ceilings.flops, "FLOP/s"),
                        format_count(limits.ceilings.bytes, "B/s"));
  if (std::ranges::any_of(ops, in_caches))
    text += "roof above 100%: the op's data comes from caches, which are faster than the memory\n";
  return text + copies_text(ops);
}

nlohmann::ordered_json op_json(const std::vector<OpTiming>& ops, const OpLimits& limits) {
  const double total = step_seconds(ops);
  nlohmann::ordered_json json = {{"seconds_per_step", total}, {"ops", nlohmann::ordered_json::array()}};
  for (const OpTiming& op : ops) {
    nlohmann::ordered_json row = {{"kind", op.kind},
                                  {"description", op.description},
                                  {"layer", op.layer},
                                  {"count", op.count},
                                  {"seconds", op.seconds},
                                  {"fastest_seconds", op.fastest},
                                  {"flops", op.flops},
                                  {"bytes", op.bytes},
                                  {"share", op.step_seconds() / total}};
    if (op.least_seconds > 0) {
      row["least_seconds"] = op.least_seconds;
      row["bound"] = op.memory_bound ? "memory" : "compute";
    }
    if (op.copy_seconds > 0) {
      row["copy_seconds"] = op.copy_seconds;
      row["of_copy"] = op.copy_seconds / op.seconds;
    }
    json["ops"].push_back(std::move(row));
  }
  if (limits.ceilings.bytes > 0)
    json["ceilings"] = {{"flops_per_second", limits.ceilings.flops},
                        {"bytes_per_second", limits.ceilings.bytes}};
  if (!limits.copies.empty()) json["copies"] = memory_json(limits.copies)["results"];
  return json;
}

}  // namespace redline::bench
