#include "bench/memory_bench.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>
#include <utility>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"

namespace redline::bench {
namespace {

using backend::MemoryGroup;
using backend::MemoryMethod;

constexpr int kMostRounds = 1000;
constexpr std::size_t kEnough = 6;  // runs: the fewest whose range covers the median with 95%
constexpr double kLongest = 2;      // seconds for runs beyond these

void measure(backend::MemoryMove& move, const MemoryBenchOptions& options, MemoryTiming& timing) {
  move.run(1);  // warm-up
  timing.rounds =
      std::clamp(static_cast<int>(options.run_seconds / std::max(move.run(1), 1e-9)), 1, kMostRounds);
  double total = 0;
  for (int i = 0; i < options.repeat && (timing.seconds.size() < kEnough || total < kLongest); ++i) {
    const double seconds = move.run(timing.rounds);
    total += seconds;
    timing.seconds.push_back(seconds / timing.rounds);
  }
  check_words(move, timing);
}

std::vector<std::size_t> sizes_of(const std::vector<MemoryTiming>& timings, MemoryGroup group) {
  std::set<std::size_t> sizes;
  for (const MemoryTiming& t : timings)
    if (t.method.group == group) sizes.insert(t.bytes);
  return {sizes.begin(), sizes.end()};
}

// "pinned", "pinned, 4 threads"
std::string title(const MemoryMethod& method) {
  return method.threads == 1 ? method.name : fmt::format("{}, {} threads", method.name, method.threads);
}

// "12.30 +- 4.1%": the rate and half its interval; no interval where it would say nothing.
std::string rate_text(const MemoryTiming& timing) {
  const double rate = timing.bytes_per_second();
  const ConfidenceInterval interval = timing.bytes_per_second_interval();
  const bool told = informs({interval.low / rate - 1, interval.high / rate - 1, interval.coverage});
  return fmt::format("{:.2f} +-{:>5}", rate / 1e9,
                     told ? fmt::format("{:.1f}%", 100 * (interval.high - interval.low) / 2 / rate) : "?");
}

}  // namespace

void check_words(backend::MemoryMove& move, const MemoryTiming& timing) {
  const std::size_t wrong = move.wrong_words();
  check(wrong == 0, "{}, '{}', {}: {} words are not where they belong", name_of(timing.method.group),
        timing.method.name, format_bytes(timing.bytes), wrong);
}

void validate(const MemoryBenchOptions& options) {
  if (options.sizes.empty()) throw UsageError("--sizes is empty");
  for (const std::size_t size : options.sizes) {
    if (size < backend::kMemoryStep || size % backend::kMemoryStep != 0)
      throw UsageError("--sizes: {} bytes is not a multiple of {} KiB", size, backend::kMemoryStep >> 10);
  }
  if (options.repeat < 1 || options.repeat > 100'000)
    throw UsageError("--repeat {} is not between 1 and 100000", options.repeat);
}

double MemoryTiming::bytes_per_second() const {
  return measured() ? static_cast<double>(bytes) * method.traffic / median(seconds) : 0;
}

ConfidenceInterval MemoryTiming::bytes_per_second_interval() const {
  if (!measured()) return {};
  std::vector<double> sorted = seconds;
  std::ranges::sort(sorted);
  const ConfidenceInterval interval = quantile_interval(sorted, 0.5);
  const double moved = static_cast<double>(bytes) * method.traffic;
  return {moved / interval.high, moved / interval.low, interval.coverage};
}

std::vector<MemoryTiming> bench_memory(const MemoryBenchOptions& options, backend::MemoryStudy& study,
                                       const MemoryProgress& progress) {
  validate(options);
  const std::vector<MemoryMethod>& methods = study.methods();
  std::vector<std::size_t> chosen;
  bool any = false;
  for (std::size_t i = 0; i < methods.size(); ++i) {
    const bool named = methods[i].name.find(options.filter) != std::string::npos;
    any = any || named;
    if (named || methods[i].plain) chosen.push_back(i);
  }
  if (!any) {
    std::set<std::string> names;
    for (const MemoryMethod& method : methods) names.insert(method.name);
    throw UsageError("--methods {}: no such method; choose from {}", options.filter, fmt::join(names, "; "));
  }
  std::vector<MemoryTiming> timings;
  for (const std::size_t i : chosen) {
    for (const std::size_t bytes : options.sizes) {
      MemoryTiming timing;
      timing.method = methods[i];
      timing.bytes = bytes;
      try {
        measure(*study.prepare(i, bytes), options, timing);
      } catch (const UnavailableError& why) {
        timing.seconds.clear();
        timing.refusal = why.what();
      }
      timings.push_back(std::move(timing));
      if (!progress(timings.size(), chosen.size() * options.sizes.size())) return timings;
    }
  }
  return timings;
}

const char* name_of(MemoryGroup group) {
  switch (group) {
    case MemoryGroup::to_device:
      return "host to device";
    case MemoryGroup::from_device:
      return "device to host";
    case MemoryGroup::access:
      break;
  }
  return "access";
}

double ceiling(const std::vector<MemoryTiming>& timings, MemoryGroup group, std::size_t bytes) {
  double best = 0;
  for (const MemoryTiming& t : timings)
    if (t.method.group == group && t.method.plain && t.bytes == bytes)
      best = std::max(best, t.bytes_per_second());
  return best;
}

double ceiling(const std::vector<MemoryTiming>& timings, MemoryGroup group) {
  std::size_t largest = 0;
  for (const MemoryTiming& t : timings)
    if (t.method.group == group && t.method.plain && t.measured()) largest = std::max(largest, t.bytes);
  return ceiling(timings, group, largest);
}

std::string memory_table(const std::vector<MemoryTiming>& timings, MemoryGroup group) {
  const std::vector<std::size_t> sizes = sizes_of(timings, group);
  if (sizes.empty()) return {};
  const double best = ceiling(timings, group);
  std::string text = fmt::format("{}, GB/s", name_of(group));
  if (best > 0) text += fmt::format("; the plain copy reaches {:.1f}", best / 1e9);
  text += fmt::format("\n{:<36}", "");
  for (const std::size_t size : sizes) text += fmt::format(" {:>16}", format_bytes(size));
  text += fmt::format(" {:>8}\n", "of copy");
  std::set<std::string> refusals;
  for (std::size_t i = 0; i < timings.size();) {
    if (timings[i].method.group != group) {
      ++i;
      continue;
    }
    const std::string name = title(timings[i].method);
    text += fmt::format("{:<36}", name);
    double last = 0;  // at the largest size
    std::vector<std::string> cells(sizes.size());
    for (; i < timings.size() && timings[i].method.group == group && title(timings[i].method) == name; ++i) {
      const MemoryTiming& t = timings[i];
      std::string& cell =
          cells[static_cast<std::size_t>(std::ranges::lower_bound(sizes, t.bytes) - sizes.begin())];
      if (!t.measured()) {
        refusals.insert(fmt::format("{}: {}", name, t.refusal));
        continue;
      }
      cell = rate_text(t);
      if (t.bytes == sizes.back()) last = t.bytes_per_second();
    }
    for (const std::string& cell : cells) text += fmt::format(" {:>16}", cell.empty() ? "-" : cell);
    text += best > 0 && last > 0
                ? fmt::format(" {:>7.1f}% {}\n", 100 * last / best, text_bar(std::min(last, best), best, 16))
                : fmt::format(" {:>8}\n", "-");
  }
  for (const std::string& refusal : refusals) text += refusal + "\n";
  return text;
}

std::string memory_csv(const std::vector<MemoryTiming>& timings) {
  std::string text =
      "group,method,threads,bytes,traffic,runs,rounds,seconds_p50,bytes_per_second,bytes_per_second_low,"
      "bytes_per_second_high,of_plain_copy,status\n";
  for (const MemoryTiming& t : timings) {
    text += fmt::format("{},{},{},{},{},{},", name_of(t.method.group), csv_quoted(t.method.name),
                        t.method.threads, t.bytes, t.method.traffic, t.seconds.size());
    if (!t.measured()) {
      text += ",,,,,,unavailable\n";
      continue;
    }
    const ConfidenceInterval interval = t.bytes_per_second_interval();
    const double best = ceiling(timings, t.method.group, t.bytes);
    text += fmt::format("{},{:.9f},{:.0f},{:.0f},{:.0f},{},ok\n", t.rounds, median(t.seconds),
                        t.bytes_per_second(), interval.low, interval.high,
                        best > 0 ? fmt::format("{:.4f}", t.bytes_per_second() / best) : "");
  }
  return text;
}

nlohmann::ordered_json memory_json(const std::vector<MemoryTiming>& timings) {
  nlohmann::ordered_json json = {{"ceilings", nlohmann::ordered_json::object()},
                                 {"results", nlohmann::ordered_json::array()}};
  for (const MemoryGroup group : kMemoryGroups) {
    if (const double best = ceiling(timings, group); best > 0) json["ceilings"][name_of(group)] = best;
  }
  for (const MemoryTiming& t : timings) {
    nlohmann::ordered_json result = {{"group", name_of(t.method.group)},
                                     {"method", t.method.name},
                                     {"threads", t.method.threads},
                                     {"bytes", t.bytes},
                                     {"traffic", t.method.traffic},
                                     {"plain", t.method.plain},
                                     {"status", t.measured() ? "ok" : "unavailable"}};
    if (t.measured()) {
      const ConfidenceInterval interval = t.bytes_per_second_interval();
      result["bytes_per_second"] = t.bytes_per_second();
      result["bytes_per_second_interval"] = {
          {"low", interval.low}, {"high", interval.high}, {"coverage", interval.coverage}};
      result["rounds"] = t.rounds;
      result["seconds"] = t.seconds;
    } else {
      result["reason"] = t.refusal;
    }
    json["results"].push_back(std::move(result));
  }
  return json;
}

BarChart memory_chart(const std::vector<MemoryTiming>& timings, MemoryGroup group) {
  const std::vector<std::size_t> sizes = sizes_of(timings, group);
  if (sizes.empty()) return {};
  const bool within = group == MemoryGroup::access;
  int most = 1;
  for (const MemoryTiming& t : timings)
    if (t.method.group == group) most = std::max(most, t.method.threads);
  BarChart chart{fmt::format("{}, {}", name_of(group), format_bytes(sizes.back())),
                 "GB/s",
                 {},
                 ceiling(timings, group) / 1e9};
  if (within && most > 1) chart.title += fmt::format(", {} threads", most);
  for (const MemoryTiming& t : timings) {
    if (t.method.group != group || t.bytes != sizes.back() || !t.measured()) continue;
    if (!within || t.method.threads == most)
      chart.bars.emplace_back(within ? t.method.name : title(t.method), t.bytes_per_second() / 1e9);
  }
  return chart;
}

}  // namespace redline::bench
