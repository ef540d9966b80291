// The files of a sweep: logs, a table, and a record with every number.
#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/build_info.h"
#include "base/text.h"
#include "bench/throughput.h"

namespace redline::bench {
namespace {

using Json = nlohmann::ordered_json;

Json maybe(const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); }

std::string cell(const std::optional<double>& value, int digits = 1) {
  return value ? fmt::format("{:.{}f}", *value, digits) : "";
}

std::optional<double> limit_of(const Throughput& r, const profile::TelemetrySummary& telemetry) {
  return r.power_limit ? std::optional<double>(*r.power_limit) : telemetry.power_limit_w;
}

std::int64_t skipped(const Throughput& r) {
  std::int64_t count = 0;
  for (const ThroughputRound& round : r.rounds) count += round.skipped;
  return count;
}

constexpr const char* kHeader =
    "model,dtype,batch,power_limit_w,rounds,iterations,warmup,images_per_second,images_per_second_low,"
    "images_per_second_high,step_p50_s,step_p90_s,step_p99_s,data_wait_pct,skipped_steps,memory_bytes,"
    "gpu_use_pct,sm_clock_mhz,memory_clock_mhz,power_w,temperature_c,throttle,cpu_clock_mhz,cpu_use,"
    "joules_per_step,images_per_joule,power_bound,status,reason\n";

// The columns from images_per_second to power_bound.
std::string measured_cells(const Throughput& r) {
  const Summary summary = summarize(r.step_seconds());
  const ConfidenceInterval interval = r.images_per_second_interval();
  const profile::TelemetrySummary t = r.telemetry();
  std::string text = fmt::format("{:.3f},", r.images_per_second());
  text += interval.coverage > 0 ? fmt::format("{:.3f},{:.3f},", interval.low, interval.high) : ",,";
  text += fmt::format("{:.6f},{:.6f},{:.6f},{:.2f},{},{},", summary.median, summary.p90, summary.p99,
                      100 * r.data_wait(), skipped(r), r.memory_bytes);
  text += fmt::format("{},{},{},{},{},{},{},{},", cell(t.use_pct), cell(t.sm_clock_mhz),
                      cell(t.memory_clock_mhz), cell(t.power_w), cell(t.temperature_c),
                      profile::throttle_text(t.throttle), cell(t.cpu_clock_mhz), cell(t.cpu_use));
  const std::optional<bool> bound = bench::power_bound(t);
  return text + fmt::format("{},{},{}", cell(r.joules_per_step(), 4), cell(r.images_per_joule(), 3),
                            bound ? *bound ? "yes" : "no" : "");
}

Json round_json(const Throughput& r, std::size_t at) {
  const ThroughputRound& round = r.rounds[at];
  const profile::TelemetrySummary& t = round.telemetry;
  return {{"images_per_second", r.round_speeds()[at]}, {"seconds", round.seconds()},
          {"gap_seconds", round.gap_seconds},          {"data_seconds", round.data_seconds},
          {"warmup_seconds", round.warmup_seconds},    {"skipped_steps", round.skipped},
          {"sm_clock_mhz", maybe(t.sm_clock_mhz)},     {"power_w", maybe(t.power_w)},
          {"temperature_c", maybe(t.temperature_c)},   {"joules", maybe(t.joules)},
          {"step_seconds", round.step_seconds}};
}

}  // namespace

std::string throughput_log(const Throughput& r) {
  std::string text = fmt::format("model {} batch {} dtype {}", r.model, r.batch, r.dtype);
  if (r.power_limit) text += fmt::format(" power limit {} W", *r.power_limit);
  text += fmt::format("\nprogram {}\ndevice {}\n", program_text(), r.device);
  for (std::size_t at = 0; at < r.rounds.size(); ++at) {
    const ThroughputRound& round = r.rounds[at];
    text += fmt::format("round {} warm-up {} iterations {:.6f} s\n", at + 1, r.warmup, round.warmup_seconds);
    for (std::size_t i = 0; i < round.step_seconds.size(); ++i) {
      const double seconds = round.step_seconds[i];
      text +=
          fmt::format("iteration {} {:.6f} s {:.2f} images/s\n", r.warmup + static_cast<std::int64_t>(i) + 1,
                      seconds, static_cast<double>(r.batch) / seconds);
    }
    text += fmt::format("round {} {:.6f} s {:.2f} images/s\n", at + 1, round.seconds(), r.round_speeds()[at]);
  }
  if (!r.failure.empty())
    text += fmt::format("{}: {}\n", r.measured() ? "failed then" : "not measured", r.failure);
  if (!r.measured()) return text;
  const Summary summary = summarize(r.step_seconds());
  text +=
      fmt::format("step p50 {:.6f} s p90 {:.6f} s p99 {:.6f} s\n", summary.median, summary.p90, summary.p99);
  text += fmt::format("throughput {:.2f} images/s", r.images_per_second());
  const ConfidenceInterval interval = r.images_per_second_interval();
  if (interval.coverage > 0)
    text += fmt::format(", 95% interval {:.2f} to {:.2f} by the spread between rounds", interval.low,
                        interval.high);
  return text + "\n";
}

std::string throughput_csv(const std::vector<Throughput>& results) {
  std::string text = kHeader;
  for (const Throughput& r : results) {
    if (!r.measured() && r.failure.empty()) continue;  // not reached
    text +=
        fmt::format("{},{},{},{},{},{},{},", r.model, r.dtype, r.batch, cell(limit_of(r, r.telemetry()), 0),
                    r.rounds.size(), r.step_seconds().size(), r.warmup);
    text += r.measured() ? measured_cells(r) : std::string(19, ',');
    text += fmt::format(",{},{}\n", r.status(), csv_quoted(r.failure));
  }
  return text;
}

Json to_json(const Throughput& r) {
  Json json = {{"model", r.model},     {"dtype", r.dtype},   {"batch", r.batch},    {"power_limit", nullptr},
               {"classes", r.classes}, {"warmup", r.warmup}, {"status", r.status()}};
  if (r.power_limit) json["power_limit"] = *r.power_limit;
  if (!r.failure.empty()) json["reason"] = r.failure;
  if (!r.measured()) return json;
  const Summary summary = summarize(r.step_seconds());
  const ConfidenceInterval interval = r.images_per_second_interval();
  const profile::TelemetrySummary t = r.telemetry();
  json["device"] = r.device;
  json["images_per_second"] = r.images_per_second();
  json["images_per_second_interval"] = nullptr;
  if (interval.coverage > 0)
    json["images_per_second_interval"] = {
        {"low", interval.low}, {"high", interval.high}, {"coverage", interval.coverage}};
  json["step_seconds_p50"] = summary.median;
  json["step_seconds_p90"] = summary.p90;
  json["step_seconds_p99"] = summary.p99;
  json["data_wait"] = r.data_wait();
  json["skipped_steps"] = skipped(r);
  json["memory_bytes"] = r.memory_bytes;
  json["gpu_use_pct"] = maybe(t.use_pct);
  json["sm_clock_mhz"] = maybe(t.sm_clock_mhz);
  json["memory_clock_mhz"] = maybe(t.memory_clock_mhz);
  json["power_w"] = maybe(t.power_w);
  json["power_limit_w"] = maybe(limit_of(r, t));
  const std::optional<bool> bound = bench::power_bound(t);
  json["power_bound"] = bound ? Json(*bound) : Json(nullptr);
  json["temperature_c"] = maybe(t.temperature_c);
  json["throttle"] = profile::throttle_text(t.throttle);
  json["cpu_clock_mhz"] = maybe(t.cpu_clock_mhz);
  json["cpu_use"] = maybe(t.cpu_use);
  json["joules"] = maybe(t.joules);
  json["joules_per_step"] = maybe(r.joules_per_step());
  json["images_per_joule"] = maybe(r.images_per_joule());
  json["disturbed"] = r.disturbances();
  json["rounds"] = Json::array();
  for (std::size_t at = 0; at < r.rounds.size(); ++at) json["rounds"].push_back(round_json(r, at));
  return json;
}

}  // namespace redline::bench
