#include "bench/throughput.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <memory>
#include <numeric>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "metrics/recorder.h"
#include "train/setup.h"
#include "train/trainer.h"

namespace redline::bench {
namespace {

// Collects the steps of one measurement.
class StepTimes final : public metrics::Sink {
 public:
  StepTimes(Throughput& result, profile::Telemetry& telemetry, std::int64_t of,
            const ThroughputProgress& progress, std::atomic<bool>& stop)
      : result_(result), telemetry_(telemetry), of_(of), progress_(progress), stop_(stop) {}

  void step(const metrics::Step& step) override {
    if (step.step <= result_.warmup) {
      result_.warmup_seconds += step.seconds;
      if (step.step == result_.warmup) telemetry_.restart();
    } else {
      result_.step_seconds.push_back(step.seconds);
      result_.data_seconds += step.gap.data;
    }
    if (!progress_(result_, step.step, of_)) stop_ = true;
  }

 private:
  Throughput& result_;
  profile::Telemetry& telemetry_;
  std::int64_t of_;
  const ThroughputProgress& progress_;
  std::atomic<bool>& stop_;
};

// False when stopped.
bool measure(const train::Config& config, const ThroughputProgress& progress, Throughput& result) {
  const train::Setup setup = train::prepare(config);
  result.dtype = setup.config.device.dtype;
  result.device = setup.backend->description();
  const auto batches = train::train_batches(setup);
  profile::TelemetryOptions sampling;
  sampling.pci_address = setup.backend->pci_address();
  profile::Telemetry telemetry(sampling);
  std::atomic<bool> stop = false;
  metrics::Recorder recorder;
  recorder.add(std::make_unique<StepTimes>(result, telemetry, *config.schedule.steps, progress, stop));
  const auto trainer = [&] {
    try {
      return std::make_unique<train::Trainer>(setup.config, setup.plans, *setup.backend, *batches, nullptr,
                                              recorder);
    } catch (const OutOfMemoryError& error) {
      train::refuse_batch(setup, error.what());
    }
  }();
  result.memory_bytes = trainer->memory().total();
  if (result.warmup == 0) telemetry.restart();
  if (!trainer->run(stop)) return false;
  result.telemetry = telemetry.summary();
  return true;
}

nlohmann::ordered_json maybe(const std::optional<double>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
}

std::string cell(const std::optional<double>& value) { return value ? fmt::format("{:.1f}", *value) : ""; }

std::string key_of(const std::string& model, const std::string& dtype, std::int64_t batch) {
  return fmt::format("{}/{}/{}", model, dtype, batch);
}

}  // namespace

void validate(const ThroughputOptions& options) {
  if (options.models.empty() || options.dtypes.empty() || options.batch_sizes.empty())
    throw UsageError("--models, --dtype and --batch-sizes each need at least one value");
  for (const std::int64_t batch : options.batch_sizes)
    if (batch < 1) throw UsageError("--batch-sizes: {} is no batch", batch);
  if (options.stop_iteration < 1)
    throw UsageError("--stop-iteration {} must be at least 1", options.stop_iteration);
  if (options.warmup < 0) throw UsageError("--warmup {} is negative", options.warmup);
  if (options.warmup >= options.stop_iteration)
    throw UsageError("--warmup {} leaves nothing to measure of --stop-iteration {}: raise the latter",
                     options.warmup, options.stop_iteration);
}

double Throughput::total_seconds() const {
  return std::accumulate(step_seconds.begin(), step_seconds.end(), 0.0);
}

double Throughput::images_per_second() const {
  return measured() ? static_cast<double>(batch) / median(step_seconds) : 0;
}

ConfidenceInterval Throughput::images_per_second_interval() const {
  if (!measured()) return {};
  std::vector<double> sorted = step_seconds;
  std::ranges::sort(sorted);
  const ConfidenceInterval seconds = quantile_interval(sorted, 0.5);
  const auto images = static_cast<double>(batch);
  return {images / seconds.high, images / seconds.low, seconds.coverage};
}

double Throughput::images_per_joule() const {
  const double joules = telemetry.joules.value_or(0);
  return joules > 0 ? static_cast<double>(batch) * static_cast<double>(step_seconds.size()) / joules : 0;
}

std::vector<Throughput> bench_throughput(const ThroughputOptions& options, const ThroughputProgress& progress,
                                         const ThroughputDone& done) {
  validate(options);
  std::vector<Throughput> results;
  for (const std::string& model : options.models) {
    for (const std::string& dtype : options.dtypes) {
      for (const std::int64_t batch : options.batch_sizes) {
        train::Config config = options.config;
        config.device.tune = true;  // what is measured is the fastest there is
        config.model.name = model;
        config.device.dtype = dtype;
        config.device.amp = false;
        config.optimizer.batch_size = batch;
        config.schedule.epochs.reset();
        config.schedule.steps = options.stop_iteration;
        Throughput result;
        result.model = model;
        result.dtype = dtype;
        result.batch = batch;
        result.warmup = options.warmup;
        if (!progress(result, 0, options.stop_iteration)) return results;
        try {
          if (!measure(config, progress, result)) return results;
        } catch (const train::BatchTooLarge& reason) {
          result.refusal = reason.what();
        }
        done(result);
        results.push_back(std::move(result));
      }
    }
  }
  return results;
}

std::string throughput_log(const Throughput& result) {
  std::string text = fmt::format("model {} batch {} dtype {}\ndevice {}\n", result.model, result.batch,
                                 result.dtype, result.device);
  if (!result.measured()) return text + fmt::format("not measured: {}\n", result.refusal);
  text += fmt::format("warm-up {} iterations {:.6f} s\n", result.warmup, result.warmup_seconds);
  for (std::size_t i = 0; i < result.step_seconds.size(); ++i) {
    const double seconds = result.step_seconds[i];
    text += fmt::format("iteration {} {:.6f} s {:.2f} images/s\n",
                        result.warmup + static_cast<std::int64_t>(i) + 1, seconds,
                        static_cast<double>(result.batch) / seconds);
  }
  const Summary summary = summarize(result.step_seconds);
  const ConfidenceInterval interval = result.images_per_second_interval();
  text +=
      fmt::format("step p50 {:.6f} s p90 {:.6f} s p99 {:.6f} s\n", summary.median, summary.p90, summary.p99);
  text += fmt::format("throughput {:.2f} images/s, 95% interval {:.2f} to {:.2f}\n",
                      result.images_per_second(), interval.low, interval.high);
  return text;
}

std::string throughput_csv(const std::vector<Throughput>& results) {
  std::string text =
      "model,dtype,batch,iterations,warmup,images_per_second,images_per_second_low,images_per_second_high,"
      "step_p50_s,step_p90_s,step_p99_s,data_wait_pct,memory_bytes,gpu_use_pct,sm_clock_mhz,memory_clock_mhz,"
      "power_w,temperature_c,throttle,cpu_clock_mhz,cpu_use,images_per_joule,status\n";
  for (const Throughput& r : results) {
    text += fmt::format("{},{},{},{},{},", r.model, r.dtype, r.batch, r.step_seconds.size(), r.warmup);
    if (!r.measured()) {
      text += std::string(17, ',') + "does not fit\n";
      continue;
    }
    const Summary summary = summarize(r.step_seconds);
    const ConfidenceInterval interval = r.images_per_second_interval();
    const profile::TelemetrySummary& t = r.telemetry;
    text += fmt::format("{:.3f},{:.3f},{:.3f},{:.6f},{:.6f},{:.6f},{:.2f},{},", r.images_per_second(),
                        interval.low, interval.high, summary.median, summary.p90, summary.p99,
                        100 * r.data_seconds / r.total_seconds(), r.memory_bytes);
    text += fmt::format("{},{},{},{},{},{},{},{},", cell(t.use_pct), cell(t.sm_clock_mhz),
                        cell(t.memory_clock_mhz), cell(t.power_w), cell(t.temperature_c),
                        profile::throttle_text(t.throttle), cell(t.cpu_clock_mhz), cell(t.cpu_use));
    const double joule = r.images_per_joule();
    text += (joule > 0 ? fmt::format("{:.3f}", joule) : "") + ",ok\n";
  }
  return text;
}

nlohmann::ordered_json to_json(const Throughput& r) {
  nlohmann::ordered_json json = {
      {"model", r.model}, {"dtype", r.dtype}, {"batch", r.batch}, {"warmup", r.warmup}};
  if (!r.measured()) {
    json["status"] = "does not fit";
    json["reason"] = r.refusal;
    return json;
  }
  const Summary summary = summarize(r.step_seconds);
  const ConfidenceInterval interval = r.images_per_second_interval();
  const profile::TelemetrySummary& t = r.telemetry;
  json["status"] = "ok";
  json["device"] = r.device;
  json["images_per_second"] = r.images_per_second();
  json["images_per_second_interval"] = {
      {"low", interval.low}, {"high", interval.high}, {"coverage", interval.coverage}};
  json["step_seconds_p50"] = summary.median;
  json["step_seconds_p90"] = summary.p90;
  json["step_seconds_p99"] = summary.p99;
  json["data_seconds"] = r.data_seconds;
  json["warmup_seconds"] = r.warmup_seconds;
  json["memory_bytes"] = r.memory_bytes;
  json["gpu_use_pct"] = maybe(t.use_pct);
  json["sm_clock_mhz"] = maybe(t.sm_clock_mhz);
  json["memory_clock_mhz"] = maybe(t.memory_clock_mhz);
  json["power_w"] = maybe(t.power_w);
  json["power_limit_w"] = maybe(t.power_limit_w);
  json["temperature_c"] = maybe(t.temperature_c);
  json["throttle"] = profile::throttle_text(t.throttle);
  json["cpu_clock_mhz"] = maybe(t.cpu_clock_mhz);
  json["cpu_use"] = maybe(t.cpu_use);
  json["joules"] = maybe(t.joules);
  json["images_per_joule"] =
      r.images_per_joule() > 0 ? nlohmann::ordered_json(r.images_per_joule()) : nullptr;
  json["step_seconds"] = r.step_seconds;
  return json;
}

ThroughputComparison compare_throughput(const nlohmann::ordered_json& record, const std::string& path,
                                        const std::vector<Throughput>& now) {
  ThroughputComparison comparison;
  std::vector<double> before, after;
  try {
    if (record.at("kind") != "bench throughput") throw DataError("{} is no record of bench throughput", path);
    for (const auto& old : record.at("results")) {
      if (old.at("status") != "ok") continue;
      const auto key = key_of(old.at("model"), old.at("dtype"), old.at("batch"));
      const auto found = std::ranges::find_if(now, [&](const Throughput& result) {
        return result.measured() && key_of(result.model, result.dtype, result.batch) == key;
      });
      if (found == now.end()) continue;
      // Speed is one over time: measured the other way round, times compare as speeds do.
      const auto old_seconds = old.at("step_seconds").get<std::vector<double>>();
      const bool sound = !old_seconds.empty() && std::ranges::all_of(old_seconds, [](double seconds) {
        return std::isfinite(seconds) && seconds > 0;
      });
      if (!sound) throw DataError("{}: the step times of batch {} are not times", path, found->batch);
      const double old_speed = static_cast<double>(found->batch) / median(old_seconds);
      comparison.batches.push_back({found->model, found->dtype, found->batch, old_speed,
                                    found->images_per_second(),
                                    compare_medians(found->step_seconds, old_seconds)});
      before.push_back(old_speed);
      after.push_back(found->images_per_second());
    }
  } catch (const nlohmann::json::exception& error) {
    throw DataError("{} is no record of bench throughput: {}", path, error.what());
  }
  if (!before.empty()) comparison.overall = compare_paired(before, after);
  return comparison;
}

}  // namespace redline::bench
