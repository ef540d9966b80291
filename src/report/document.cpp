#include "report/document.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/build_info.h"
#include "base/clock.h"
#include "report/comparison.h"
#include "report/thin.h"

namespace redline::report {
namespace {

using Json = nlohmann::ordered_json;

// Points over all series of all runs, about 400 KB of text. Telemetry has its own share, so that many devices
// leave room for the steps.
constexpr std::size_t kStepPoints = 14'000, kTelemetryPoints = 12'000;
constexpr std::size_t kMostPoints = 1000;  // per series: no screen shows more
constexpr std::size_t kLeastPoints = 40;
constexpr std::size_t kSmoothPoints = 150;
constexpr std::size_t kSplitPoints = 100;
constexpr std::size_t kClockPoints = 200;  // of the line that maps steps to time
constexpr std::size_t kBins = 60;
constexpr std::size_t kMostRows = 500;     // per table of a page
constexpr std::size_t kProfileRows = 800;  // per list of a profile, over all runs
constexpr std::size_t kMostNameBytes = 300;

class Writer {
 public:
  Writer(Detail detail, std::size_t step_series, std::size_t telemetry_series, std::size_t runs)
      : detail_(detail), profile_rows_(kProfileRows / std::max<std::size_t>(1, runs)) {
    const auto share = [](std::size_t points, std::size_t series) {
      return std::clamp(points / std::max<std::size_t>(1, series), kLeastPoints, kMostPoints);
    };
    if (detail == Detail::page) {
      step_points_ = share(kStepPoints, step_series);
      telemetry_points_ = share(kTelemetryPoints, telemetry_series);
    }
  }

  Json number(double value) const {
    if (!std::isfinite(value)) return nullptr;
    if (detail_ == Detail::full) return value;
    // Six digits are more than a screen shows and halve the text.
    const double rounded = std::strtod(fmt::format("{:.6g}", value).c_str(), nullptr);
    if (rounded == std::floor(rounded) && std::abs(rounded) < 1e15) return static_cast<std::int64_t>(rounded);
    return rounded;
  }
  Json number(const std::optional<double>& value) const { return value ? number(*value) : Json(nullptr); }

  Json numbers(const std::vector<double>& values) const {
    Json::array_t list;
    list.reserve(values.size());
    for (double value : values) list.push_back(number(value));
    return list;
  }

  Json of_steps(const std::vector<double>& x, const std::vector<double>& y) const {
    return series(x, y, step_points_);
  }
  Json of_telemetry(const std::vector<double>& x, const std::vector<double>& y) const {
    return series(x, y, telemetry_points_);
  }

  // Null if it has no values.
  Json series(const std::vector<double>& x, const std::vector<double>& y, std::size_t most) const {
    if (std::ranges::none_of(y, [](double value) { return std::isfinite(value); })) return nullptr;
    const Series thinned = thin(x, y, most);
    return {{"x", numbers(thinned.x)}, {"y", numbers(thinned.y)}};
  }

  Json smooth(const std::vector<double>& x, const std::vector<double>& y) const {
    const Series mean = average(x, y, std::min(kSmoothPoints, step_points_));
    return {{"x", numbers(mean.x)}, {"y", numbers(mean.y)}};
  }

  // Cuts a long list to what a page can hold: its first and last entries.
  template <typename List, typename Convert>
  Json list(const List& items, Convert convert) const {
    Json result = Json::array();
    const std::size_t most = detail_ == Detail::full ? items.size() : kMostRows;
    for (std::size_t i = 0; i < items.size(); ++i)
      if (i < most / 2 || items.size() - i <= most - most / 2) result.push_back(convert(items[i]));
    return result;
  }

  Detail detail() const { return detail_; }
  std::size_t profile_rows() const { return profile_rows_; }

 private:
  Detail detail_;
  std::size_t profile_rows_;
  std::size_t step_points_ = 0, telemetry_points_ = 0;
};

Json pairs(const Pairs& list) {
  Json result = Json::array();
  for (const auto& [key, value] : list) result.push_back({key, value});
  return result;
}

Json interval_json(const Writer& writer, const ConfidenceInterval& interval) {
  return {{"low", writer.number(interval.low)},
          {"high", writer.number(interval.high)},
          {"coverage", writer.number(interval.coverage)}};
}

Json evaluation_json(const Writer& writer, const metrics::Evaluation& evaluation) {
  return {{"step", evaluation.step},
          {"epoch", evaluation.epoch},
          {"weights", evaluation.weights},
          {"loss", writer.number(evaluation.loss)},
          {"top1", writer.number(evaluation.top1)},
          {"top5", writer.number(evaluation.top5)},
          {"samples", evaluation.samples},
          {"seconds", writer.number(evaluation.seconds)}};
}

Json energy_json(const Writer& writer, const Energy& energy) {
  return {{"power_w", writer.number(energy.power_w)},
          {"joules", writer.number(energy.joules)},
          {"joules_per_step", writer.number(energy.joules_per_step)},
          {"images_per_joule", writer.number(energy.images_per_joule)},
          {"epochs", writer.list(energy.epochs, [&](const Energy::Epoch& epoch) {
             return Json{{"epoch", epoch.epoch},
                         {"joules", writer.number(epoch.joules)},
                         {"images", writer.number(epoch.images)},
                         {"steps", epoch.steps}};
           })}};
}

Json target_json(const Writer& writer, const metrics::Target& target) {
  return {{"top1", writer.number(target.top1)},
          {"reached", target.reached()},
          {"best", writer.number(target.best)},
          {"step", target.step},
          {"epoch", target.epoch},
          {"seconds", writer.number(target.seconds)}};
}

Json summary_json(const Writer& writer, const Run& run, const RunSummary& summary) {
  const auto of_energy = [&](auto field) {
    return summary.energy ? writer.number((*summary.energy).*field) : Json(nullptr);
  };
  Json json = {{"steps", summary.steps},
               {"total_steps", summary.total_steps},
               {"seconds", writer.number(summary.seconds)},
               {"images_per_second", writer.number(summary.images_per_second)},
               {"images_per_second_at_median", writer.number(summary.images_per_second_at_median)},
               {"data_wait", writer.number(summary.data_wait)},
               {"final_loss", writer.number(summary.final_loss)},
               {"skipped_steps", run.steps.skipped},
               {"resumes", run.resumes},
               {"power_w", of_energy(&Energy::power_w)},
               {"energy_j", of_energy(&Energy::joules)},
               {"temperature_c", writer.number(summary.temperature_c)},
               {"clock_mhz", writer.number(summary.clock_mhz)},
               {"memory_bytes", writer.number(summary.memory_bytes)},
               {"energy", summary.energy ? energy_json(writer, *summary.energy) : Json(nullptr)},
               {"throttling", Json::array()},
               {"disturbances", summary.disturbances}};
  json["stalls"] = nullptr;
  if (const auto& stalls = summary.stalls)
    json["stalls"] = {{"steps", stalls->steps},
                      {"seconds", writer.number(stalls->seconds)},
                      {"share", writer.number(stalls->share)},
                      {"longest_step", stalls->longest_step},
                      {"longest_seconds", writer.number(stalls->longest_seconds)}};
  for (const Throttle& held : summary.throttling)
    json["throttling"].push_back({{"reason", held.reason}, {"share", writer.number(held.share)}});
  if (summary.images_per_second_interval)
    json["images_per_second_interval"] = interval_json(writer, *summary.images_per_second_interval);
  if (summary.last) json["last_evaluation"] = evaluation_json(writer, *summary.last);
  if (summary.best) json["best_evaluation"] = evaluation_json(writer, *summary.best);
  if (run.end && run.end->target) json["target"] = target_json(writer, *run.end->target);
  return json;
}

// Quantiles, and a histogram from the fastest step to the 99th percentile so that the bulk stays readable.
// Longer steps are counted.
Json step_time_json(const Writer& writer, const Run& run, const Summary& summary) {
  const std::vector<double> times = step_seconds(run);
  const Bins bins =
      count_in_bins(times, summary.min, summary.p99, std::min(kBins, std::max<std::size_t>(1, times.size())));
  return {{"count", summary.count},
          {"mean", writer.number(summary.mean)},
          {"deviation", writer.number(summary.deviation)},
          {"min", writer.number(summary.min)},
          {"q1", writer.number(summary.q1)},
          {"median", writer.number(summary.median)},
          {"q3", writer.number(summary.q3)},
          {"p90", writer.number(summary.p90)},
          {"p99", writer.number(summary.p99)},
          {"max", writer.number(summary.max)},
          {"median_interval", interval_json(writer, summary.median_interval)},
          {"histogram",
           {{"low", writer.number(bins.low)},
            {"high", writer.number(bins.high)},
            {"counts", bins.counts},
            {"above", bins.above}}}};
}

std::vector<double> ratio(const std::vector<double>& above, const std::vector<double>& below) {
  std::vector<double> result(above.size());
  for (std::size_t i = 0; i < above.size(); ++i) result[i] = above[i] / below[i];
  return result;
}

// Leaves out the first step of each process: warm-up would set the scale of every time chart.
std::vector<double> steady(const Steps& steps, std::vector<double> values) {
  for (std::size_t begin : steps.begins)  // the last process may not have finished a step yet
    if (begin < values.size()) values[begin] = std::numeric_limits<double>::quiet_NaN();
  return values;
}

Json warm_up_json(const Writer& writer, const Steps& steps) {
  Json list = Json::array();
  for (std::size_t begin : steps.begins)
    if (begin < steps.size())
      list.push_back(
          {{"step", writer.number(steps.step[begin])}, {"seconds", writer.number(steps.seconds[begin])}});
  return list;
}

Json time_json(const Writer& writer, const Run& run) {
  Json json = Json::object();
  for (const TimeShare& share : kTimeShares) json[share.name] = writer.number(total_seconds(run, share));
  return json;
}

// The same over the course of the run: means per step, over stretches that are the same in all columns.
Json split_json(const Writer& writer, const Steps& steps) {
  Json json = Json::object();
  std::size_t size = 0;
  for (const TimeShare& share : kTimeShares) {
    const Series mean = average(steps.step, steady(steps, steps.*share.seconds), kSplitPoints);
    if (json.empty()) {
      json["x"] = writer.numbers(mean.x);
      size = mean.x.size();
    }
    const bool any = std::ranges::any_of(mean.y, [](double value) { return value != 0; });
    if (any && mean.y.size() == size) json[share.name] = writer.numbers(mean.y);
  }
  return json;
}

// Of every step that counts for timing.
std::vector<double> of_each(const Steps& steps, double (*seconds_of)(const Steps&, std::size_t)) {
  std::vector<double> seconds(steps.size());
  for (std::size_t i = 0; i < seconds.size(); ++i) seconds[i] = seconds_of(steps, i);
  return steady(steps, std::move(seconds));
}

Json series_json(const Writer& writer, const Steps& steps) {
  Json json = Json::object();
  const auto put = [&](const char* name, const std::vector<double>& values) {
    Json series = writer.of_steps(steps.step, values);
    if (series.is_null()) return;
    json[name] = std::move(series);
    if (values.size() > 2 * kSmoothPoints)
      json[name + std::string("_smooth")] = writer.smooth(steps.step, values);
  };
  if (writer.detail() == Detail::full) {
    for (const StepColumn& column : step_columns()) {
      const std::vector<double>& values = steps.*column.values;
      // As in metrics.jsonl, columns of zeros are left out: a long run has a million steps.
      const bool time = std::string_view(column.name).ends_with("_seconds");
      if (std::ranges::any_of(values,
                              [&](double value) { return std::isfinite(value) && !(time && value == 0); }))
        json[column.name] = writer.numbers(values);
    }
    return json;
  }
  put("loss", steps.loss);
  put("top1", steps.top1);
  put("lr", steps.learning_rate);
  put("gradient_norm", steps.gradient_norm);
  const auto is_first = [&](double scale) { return scale == steps.loss_scale.front(); };
  if (!std::ranges::all_of(steps.loss_scale, is_first)) put("loss_scale", steps.loss_scale);
  const std::vector<double> training = of_each(steps, training_seconds);
  put("seconds", steady(steps, steps.seconds));
  put("images_per_second", ratio(steps.samples, training));
  put("data_wait", ratio(steps.data_seconds, training));
  put("communication", ratio(of_each(steps, waiting_seconds), training));
  if (Json clock = writer.series(steps.step, steps.elapsed, kClockPoints); !clock.is_null())
    json["elapsed"] = std::move(clock);
  json["split"] = split_json(writer, steps);
  return json;
}

// In how many steps the others waited for each rank; empty for a single rank.
Json slowest_ranks_json(const Run& run) {
  constexpr std::int64_t kMostRanks = 4096;
  if (run.info.ranks < 2) return Json::array();
  std::vector<std::int64_t> counts(static_cast<std::size_t>(std::min(run.info.ranks, kMostRanks)));
  for (double rank : run.steps.slowest_rank)
    if (rank >= 0 && rank < static_cast<double>(counts.size())) ++counts[static_cast<std::size_t>(rank)];
  return counts;
}

// Counters that only grow are not worth drawing.
bool is_counter(const std::string& column) {
  constexpr std::string_view kCounters[] = {"gpu_energy_mj", "cpu_instructions", "cpu_cycles",
                                            "cpu_cache_misses"};
  return std::ranges::find(kCounters, column) != std::end(kCounters);
}

Json telemetry_json(const Writer& writer, const Telemetry& telemetry) {
  Json columns = Json::object();
  for (const Telemetry::Column& column : telemetry.columns) {
    if (writer.detail() == Detail::page && is_counter(column.name)) continue;
    const std::vector<double> values(column.values.begin(), column.values.end());
    Json series = writer.detail() == Detail::full ? writer.numbers(values)
                                                  : writer.of_telemetry(telemetry.seconds, values);
    if (!series.is_null()) columns[column.name] = std::move(series);
  }
  Json marks = writer.list(telemetry.throttle, [&](const Telemetry::Mark& mark) {
    return Json{{"seconds", writer.number(mark.seconds)}, {"text", mark.text}};
  });
  Json json = {{"source", telemetry.source}, {"rank", telemetry.rank},        {"host", telemetry.host},
               {"device", telemetry.device}, {"columns", std::move(columns)}, {"throttle", std::move(marks)}};
  json["last"] = telemetry.seconds.empty() ? Json(nullptr) : writer.number(telemetry.seconds.back());
  if (writer.detail() == Detail::full) json["seconds"] = writer.numbers(telemetry.seconds);
  return json;
}

// The whole profile, or its largest parts for a page: a single kernel's name can fill a screen.
Json profile_json(const Writer& writer, const std::string& text) {
  Json profile = Json::parse(text);
  if (writer.detail() == Detail::full) return profile;
  for (Json& value : profile) {
    if (!value.is_array()) continue;
    if (value.size() > writer.profile_rows())
      value.erase(value.begin() + static_cast<std::ptrdiff_t>(writer.profile_rows()), value.end());
    for (Json& part : value) {
      if (!part.is_object()) continue;
      for (Json& field : part) {
        if (field.is_number_float()) field = writer.number(field.get<double>());
        if (field.is_string()) field = field.get<std::string>().substr(0, kMostNameBytes);
      }
    }
  }
  return profile;
}

Json run_json(const Writer& writer, const Run& run, const RunSummary& summary) {
  const metrics::RunInfo& info = run.info;
  Json json;
  json["name"] = run.name;
  json["folder"] = run.folder.string();
  json["state"] = name_of(summary.state);
  json["detail"] = run.end ? run.end->detail : "";
  json["info"] = {{"started", info.started},
                  {"model", info.model},
                  {"data", info.data},
                  {"device", info.device},
                  {"dtype", info.dtype},
                  {"optimizer", info.optimizer},
                  {"classes", info.classes},
                  {"image_size", info.image_size},
                  {"batch_size", info.batch_size},
                  {"accumulate", info.accumulate},
                  {"parameters", info.parameters},
                  {"train_samples", info.train_samples},
                  {"val_samples", info.val_samples},
                  {"steps_per_epoch", info.steps_per_epoch},
                  {"seed", info.seed},
                  {"version", info.version},
                  {"commit", info.commit}};
  json["facts"] = pairs(run.facts);
  json["options"] = pairs(run.options);
  json["problems"] = run.problems;
  json["summary"] = summary_json(writer, run, summary);
  json["step_time"] =
      summary.step_seconds ? step_time_json(writer, run, *summary.step_seconds) : Json(nullptr);
  json["time"] = time_json(writer, run);
  json["warm_up"] = warm_up_json(writer, run.steps);
  json["series"] = series_json(writer, run.steps);
  json["ranks"] = run.info.ranks;
  json["slowest_ranks"] = slowest_ranks_json(run);
  json["evaluations"] = writer.list(
      run.evaluations, [&](const auto& evaluation) { return evaluation_json(writer, evaluation); });
  json["checkpoints"] = writer.list(run.checkpoints, [&](const metrics::Checkpoint& checkpoint) {
    return Json{{"step", checkpoint.step},
                {"name", checkpoint.name},
                {"bytes", checkpoint.bytes},
                {"best", checkpoint.best},
                {"stall_seconds", writer.number(checkpoint.stall_seconds)},
                {"write_seconds", writer.number(checkpoint.write_seconds)},
                {"error", checkpoint.error}};
  });
  json["notices"] = writer.list(run.notices, [](const metrics::Notice& notice) {
    return Json{{"step", notice.step}, {"what", notice.what}, {"text", notice.text}};
  });
  json["telemetry"] = Json::array();
  for (const Telemetry& telemetry : run.telemetry)
    json["telemetry"].push_back(telemetry_json(writer, telemetry));
  json["profile"] = run.profile ? profile_json(writer, run.profile->json) : Json(nullptr);
  return json;
}

Json change_json(const Writer& writer, const Change& change, const std::string& verdict) {
  const bool claimed = verdict != "" && verdict != "same" && verdict != "undecided" && verdict != "unlike";
  Json json = {{"change", writer.number(change.change)},
               {"interval", interval_json(writer, change.interval)},
               {"evidence", redline::name_of(change.evidence)},
               {"spread", writer.number(change.spread)},
               {"verdict", verdict.empty() ? Json(nullptr) : Json(verdict)},
               {"beyond_noise", claimed}};
  if (change.within) json["within"] = interval_json(writer, *change.within);
  return json;
}

Json comparison_json(const Writer& writer, const Compared& compared, const Comparison& row) {
  constexpr const char* kBetter[] = {"higher", "lower", "neither"};
  Json values = Json::array();
  for (const auto& value : row.values) values.push_back(writer.number(value));
  // One per run: runs of a group share it.
  std::vector<Json> changes(row.values.size(), nullptr);
  std::vector<std::size_t> unlike;
  for (std::size_t g = 1; g < compared.groups.size(); ++g) {
    for (std::size_t run : compared.groups[g].runs) {
      if (row.changes[g]) changes[run] = change_json(writer, *row.changes[g], row.verdicts[g]);
      if (row.verdicts[g] == "unlike") unlike.push_back(run);
    }
  }
  return {{"name", row.name},
          {"unit", row.unit},
          {"better", kBetter[static_cast<int>(row.better)]},
          {"measure", row.by_difference() ? "difference" : "ratio"},
          {"judged", row.judged()},
          {"values", std::move(values)},
          {"changes", std::move(changes)},
          {"unlike", std::move(unlike)}};
}

void put_comparison(const Writer& writer, const Compared& compared, Json& json) {
  for (std::size_t g = 0; g < compared.groups.size(); ++g)
    json["groups"].push_back({{"name", compared.groups[g].name},
                              {"runs", compared.groups[g].runs},
                              {"unlike", compared.unlike[g]},
                              {"advice", compared.advice[g]}});
  for (const Comparison& row : compared.rows)
    json["comparison"].push_back(comparison_json(writer, compared, row));
  for (const Difference& row : compared.differences)
    json["differences"].push_back({{"name", row.name},
                                   {"values", row.values},
                                   {"unlike_speed", row.unlike_speed},
                                   {"unlike_step", row.unlike_step},
                                   {"unlike_accuracy", row.unlike_accuracy},
                                   {"unlike_loss", row.unlike_loss}});
}

}  // namespace

std::string document(const std::vector<const Run*>& runs, Detail detail, bool judge_unlike) {
  constexpr std::size_t kStepSeries = 8;
  std::size_t telemetry_series = 0;
  std::vector<RunSummary> summaries;
  for (const Run* run : runs) {
    for (const Telemetry& telemetry : run->telemetry) telemetry_series += telemetry.columns.size();
    summaries.push_back(summarize(*run));
  }
  const Writer writer(detail, kStepSeries * runs.size(), telemetry_series, runs.size());
  Json json = {
      {"schema", "redline.report"},   {"version", kDocumentVersion},       {"program", program_facts()},
      {"generated", utc_timestamp()}, {"thinned", detail == Detail::page}, {"runs", Json::array()},
      {"groups", Json::array()},      {"comparison", Json::array()},       {"differences", Json::array()}};
  for (std::size_t i = 0; i < runs.size(); ++i)
    json["runs"].push_back(run_json(writer, *runs[i], summaries[i]));
  if (runs.size() > 1) put_comparison(writer, compare(runs, summaries, judge_unlike), json);
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace redline::report
