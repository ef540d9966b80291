#include "bench/throughput_compare.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numbers>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace redline::bench {
namespace {

using Json = nlohmann::ordered_json;

struct SpeedRow {
  std::string setting, device;
  std::int64_t classes = 0;    // 0: not recorded
  std::vector<double> speeds;  // images/s of each round
};

double checked(double speed, const std::string& setting) {
  if (!std::isfinite(speed) || speed <= 0)
    throw DataError("the speed of {} is not a positive number", setting);
  return speed;
}

std::string setting_of(const Json& result) {
  std::string text =
      fmt::format("{} {} batch {}", result.at("model").get<std::string>(),
                  result.at("dtype").get<std::string>(), result.at("batch").get<std::int64_t>());
  if (const auto limit = result.find("power_limit"); limit != result.end() && !limit->is_null())
    text += fmt::format(" at {} W", limit->get<int>());
  return text;
}

// What was measured. Records of schema 1 have one round, as times of steps.
std::vector<SpeedRow> rows_of(const Json& record) {
  std::vector<SpeedRow> rows;
  for (const Json& result : record.at("results")) {
    SpeedRow row;
    row.setting = setting_of(result);
    row.device = result.value("device", "");
    row.classes = result.value("classes", std::int64_t{0});
    const auto batch = result.at("batch").get<double>();
    if (result.contains("rounds")) {
      for (const Json& round : result.at("rounds"))
        row.speeds.push_back(checked(round.at("images_per_second").get<double>(), row.setting));
    } else if (result.contains("step_seconds")) {
      const auto seconds = result.at("step_seconds").get<std::vector<double>>();
      double sum = 0;
      for (const double value : seconds) sum += checked(value, row.setting);
      row.speeds.push_back(checked(batch * static_cast<double>(seconds.size()) / sum, row.setting));
    }
    if (!row.speeds.empty()) rows.push_back(std::move(row));
  }
  return rows;
}

std::string text_of(const Json& record, const char* pointer) {
  const Json::json_pointer at(pointer);
  if (!record.contains(at) || record.at(at).is_null()) return "";
  const Json& value = record.at(at);
  return value.is_string() ? value.get<std::string>() : value.dump();
}

void put(std::vector<ThroughputDifference>& found, std::string name, std::string before, std::string after,
         bool unlike) {
  // A fact that one of them did not record does not count as a difference.
  if (before.empty() || after.empty() || before == after) return;
  found.push_back({std::move(name), std::move(before), std::move(after), unlike});
}

std::vector<ThroughputDifference> differences(const Json& before, const Json& after) {
  constexpr std::array kWork = {"/image_size", "/data"};
  constexpr std::array kRest = {"/deterministic",    "/input_copy",  "/threads",         "/workers",
                                "/stop_iteration",   "/warmup",      "/redline/version", "/redline/commit",
                                "/redline/compiler", "/machine/cpu", "/machine/cores",   "/machine/kernel"};
  std::vector<ThroughputDifference> found;
  const auto compare = [&](const char* at, bool unlike) {
    put(found, std::string(at + 1), text_of(before, at), text_of(after, at), unlike);
  };
  for (const char* at : kWork) compare(at, true);
  for (const char* at : kRest) compare(at, false);
  return found;
}

// The change between two sweeps, one of `claims` that must all hold together.
ThroughputChange compare_rows(const std::string& setting, const std::vector<double>& before,
                              const std::vector<double>& after, std::size_t claims) {
  const double confidence = 1 - (1 - kConfidence) / static_cast<double>(claims);
  const Change change = compare_repeats(before, after, confidence);
  ThroughputChange result{setting, 0, 0, before.size(), after.size(), change.change, {}};
  result.interval = {change.change, change.change, 0};
  if (std::min(before.size(), after.size()) < 2 || change.interval.coverage <= 0) return result;
  const double tail = 0.5 + confidence / 2;
  const auto freedom = static_cast<double>(before.size() + after.size() - 2);
  const double between = std::numbers::sqrt2 * std::max(normal_quantile(tail) * kRunSpread,
                                                        student_quantile(tail, freedom) * change.spread);
  const double centre = std::log1p(change.change);
  const double within = (std::log1p(change.interval.high) - std::log1p(change.interval.low)) / 2;
  const double reach = std::hypot(within, between);
  const ConfidenceInterval interval{std::expm1(centre - reach), std::expm1(centre + reach), kConfidence};
  if (informs(interval)) result.interval = interval;
  return result;
}

// The geometric mean over settings for each round that every setting has.
std::vector<double> means_by_round(const std::vector<const SpeedRow*>& rows) {
  std::size_t rounds = rows.front()->speeds.size();
  for (const SpeedRow* row : rows) rounds = std::min(rounds, row->speeds.size());
  std::vector<double> means(rounds);
  for (std::size_t i = 0; i < rounds; ++i) {
    std::vector<double> speeds;
    for (const SpeedRow* row : rows) speeds.push_back(row->speeds[i]);
    means[i] = geometric_mean(speeds);
  }
  return means;
}

ThroughputComparison compare_records(const Json& before, const Json& after) {
  ThroughputComparison comparison;
  comparison.differences = differences(before, after);
  const std::vector<SpeedRow> old_rows = rows_of(before), new_rows = rows_of(after);
  std::vector<const SpeedRow*> old_both, new_both;
  for (const SpeedRow& row : new_rows) {
    const auto old = std::ranges::find(old_rows, row.setting, &SpeedRow::setting);
    if (old == old_rows.end()) continue;
    old_both.push_back(&*old);
    new_both.push_back(&row);
  }
  // With several settings, they get half of the error and the overall change the other half.
  const std::size_t shares = new_both.size() > 1 ? 2 : 1;
  for (std::size_t i = 0; i < new_both.size(); ++i) {
    const SpeedRow &old = *old_both[i], &row = *new_both[i];
    std::vector<ThroughputDifference> own;
    put(own, "device", old.device, row.device, true);
    if (old.classes > 0 && row.classes > 0)
      put(own, "classes", std::to_string(old.classes), std::to_string(row.classes), true);
    for (ThroughputDifference& difference : own)
      if (std::ranges::find(comparison.differences, difference.name, &ThroughputDifference::name) ==
          comparison.differences.end())
        comparison.differences.push_back(std::move(difference));
    ThroughputChange change = compare_rows(row.setting, old.speeds, row.speeds, shares * new_both.size());
    change.before = geometric_mean(old.speeds);  // which the change is of
    change.after = geometric_mean(row.speeds);
    comparison.rows.push_back(std::move(change));
  }
  if (new_both.size() > 1)
    comparison.overall = compare_rows(fmt::format("all {}", new_both.size()), means_by_round(old_both),
                                      means_by_round(new_both), shares);
  std::ranges::stable_partition(comparison.differences, &ThroughputDifference::unlike);
  return comparison;
}

}  // namespace

bool ThroughputComparison::unlike() const {
  return std::ranges::any_of(differences, &ThroughputDifference::unlike);
}

ThroughputComparison compare_throughput(const Json& before, const std::string& path, const Json& after) {
  try {
    if (before.at("kind") != "bench throughput")
      throw DataError("it is a record of {}", before.at("kind").dump());
    return compare_records(before, after);
  } catch (const nlohmann::json::exception& error) {
    throw DataError("{} is not a record of bench throughput: {}", path, error.what());
  } catch (const DataError& error) {
    throw DataError("{} is not a record of bench throughput: {}", path, error.what());
  }
}

}  // namespace redline::bench
