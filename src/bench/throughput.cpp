#include "bench/throughput.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <memory>
#include <new>
#include <numeric>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "base/log.h"
#include "base/random.h"
#include "data/progress.h"
#include "metrics/recorder.h"
#include "profile/disturbance.h"
#include "train/setup.h"
#include "train/trainer.h"

namespace redline::bench {
namespace {

// Collects the steps of one measurement.
class StepTimes final : public metrics::Sink {
 public:
  StepTimes(ThroughputRound& round, std::int64_t warmup, profile::Telemetry& telemetry,
            std::function<bool(std::int64_t step)> progress, std::atomic<bool>& stop)
      : round_(round), warmup_(warmup), telemetry_(telemetry), progress_(std::move(progress)), stop_(stop) {}

  void step(const metrics::Step& step) override {
    if (step.step <= warmup_) {
      round_.warmup_seconds += step.training_seconds();
      if (step.step == warmup_) telemetry_.restart();
    } else {
      round_.add(step);
    }
    if (!progress_(step.step)) stop_ = true;
  }

 private:
  ThroughputRound& round_;
  std::int64_t warmup_;
  profile::Telemetry& telemetry_;
  std::function<bool(std::int64_t step)> progress_;
  std::atomic<bool>& stop_;
};

train::Config config_of(const ThroughputOptions& options, const Throughput& setting) {
  train::Config config = options.config;
  config.device.time_all = true;  // to measure the fastest there is
  config.model.name = setting.model;
  config.device.dtype = setting.dtype;
  config.device.amp = false;
  config.optimizer.batch_size = setting.batch;
  config.optimizer.lr = 0;
  config.schedule.epochs.reset();
  config.schedule.steps = options.stop_iteration;
  config.run.max_bad_steps = options.stop_iteration + 1;  // skipped steps are counted but never end the run
  return config;
}

// Empty when stopped.
std::optional<ThroughputRound> measure(const train::Config& config, Throughput& setting,
                                       const std::function<bool(std::int64_t step)>& progress,
                                       const std::atomic<bool>* stopped) {
  const train::Setup setup = train::prepare(config, {}, stopped);
  setting.dtype = setup.config.device.dtype;
  setting.device = setup.backend->description();
  setting.on_gpu = !setup.backend->pci_address().empty();
  setting.classes = setup.classes;
  const auto batches = train::train_batches(setup);
  profile::TelemetryOptions sampling;
  sampling.pci_address = setup.backend->pci_address();
  profile::Telemetry telemetry(sampling);
  std::atomic<bool> stop = false;
  ThroughputRound round;
  metrics::Recorder recorder;
  recorder.add(std::make_unique<StepTimes>(round, setting.warmup, telemetry, progress, stop));
  const auto trainer = [&] {
    try {
      return std::make_unique<train::Trainer>(setup.config, setup.plans, *setup.backend, *batches, nullptr,
                                              recorder);
    } catch (const OutOfMemoryError& error) {
      train::refuse_batch(setup, error.what());
    }
  }();
  setting.memory_bytes = trainer->memory().total();
  if (setting.warmup == 0) telemetry.restart();
  if (!trainer->run(stop)) return {};
  round.telemetry = telemetry.summary();
  return round;
}

void fail(Throughput& setting, ExitCode code, bool fits, const std::string& why) {
  setting.failure = why;
  setting.failure_code = code;
  setting.fits = fits;
}

// A batch that does not fit is refused before its type is chosen. Its row belongs to those of the same type.
void name_type(const train::Config& config, Throughput& setting) {
  if (!setting.device.empty()) return;
  try {
    const auto backend = train::open_device(config);
    setting.device = backend->description();
    if (setting.dtype == "auto") setting.dtype = name_of(train::resolve_dtype(config, *backend).dtype);
  } catch (const Error&) {  // the row already says what is wrong
  }
}

// Measures a setting once more, or records why that failed; false when stopped.
bool measure_round(const ThroughputOptions& options, Throughput& setting,
                   const std::function<bool(std::int64_t step)>& progress) {
  const train::Config config = config_of(options, setting);
  try {
    auto round = measure(config, setting, progress, options.stop);
    if (!round) return false;
    setting.rounds.push_back(std::move(*round));
  } catch (const data::Stopped&) {
    return false;
  } catch (const train::BatchTooLarge& error) {
    fail(setting, error.code(), false, error.what());
  } catch (const OutOfMemoryError& error) {
    fail(setting, error.code(), false, error.what());
  } catch (const std::bad_alloc&) {
    fail(setting, ExitCode::unavailable, false, "out of memory");
  } catch (const Error& error) {
    fail(setting, error.code(), true, error.what());
  }
  if (!setting.failure.empty()) name_type(config, setting);
  return true;
}

std::vector<Throughput> settings_of(const ThroughputOptions& options) {
  std::vector<std::optional<int>> limits(options.power_limits.begin(), options.power_limits.end());
  if (limits.empty()) limits.emplace_back();
  std::vector<Throughput> settings;
  for (const std::string& model : options.models) {
    for (const std::string& dtype : options.dtypes) {
      for (const std::int64_t batch : options.batch_sizes) {
        for (const std::optional<int>& limit : limits) {
          Throughput setting;
          setting.model = model;
          setting.dtype = dtype;
          setting.batch = batch;
          setting.power_limit = limit;
          setting.warmup = options.warmup;
          settings.push_back(std::move(setting));
        }
      }
    }
  }
  return settings;
}

template <typename T>
void refuse_repeats(const std::vector<T>& values, const char* flag) {
  if (std::set<T>(values.begin(), values.end()).size() != values.size())
    throw UsageError("{} has a value twice; --rounds measures each several times", flag);
}

// The mean over the rounds that have a value.
std::optional<double> mean_of(const std::vector<ThroughputRound>& rounds,
                              std::optional<double> profile::TelemetrySummary::*value) {
  double sum = 0;
  int count = 0;
  for (const ThroughputRound& round : rounds) {
    if (!(round.telemetry.*value)) continue;
    sum += *(round.telemetry.*value);
    ++count;
  }
  return count > 0 ? std::optional(sum / count) : std::nullopt;
}

}  // namespace

void validate(const ThroughputOptions& options) {
  if (options.models.empty() || options.dtypes.empty() || options.batch_sizes.empty())
    throw UsageError("--models, --dtype and --batch-sizes each need at least one value");
  for (const std::int64_t batch : options.batch_sizes)
    if (batch < 1) throw UsageError("--batch-sizes: {} is not a batch size", batch);
  for (const int limit : options.power_limits)
    if (limit < 1) throw UsageError("--power-limits: {} W is not a power limit", limit);
  refuse_repeats(options.models, "--models");
  refuse_repeats(options.dtypes, "--dtype");
  refuse_repeats(options.batch_sizes, "--batch-sizes");
  refuse_repeats(options.power_limits, "--power-limits");
  if (options.rounds < 1) throw UsageError("--rounds {} must be at least 1", options.rounds);
  if (options.stop_iteration < 1)
    throw UsageError("--stop-iteration {} must be at least 1", options.stop_iteration);
  if (options.warmup < 0) throw UsageError("--warmup {} is negative", options.warmup);
  if (options.warmup >= options.stop_iteration)
    throw UsageError("--warmup {} leaves nothing to measure with --stop-iteration {}: raise the latter",
                     options.warmup, options.stop_iteration);
}

void ThroughputRound::add(const metrics::Step& step) {
  step_seconds.push_back(step.seconds);
  gap_seconds += step.gap.total() - step.gap.evaluation;
  data_seconds += step.gap.data;
  skipped += step.skipped ? 1 : 0;
}

double ThroughputRound::seconds() const {
  return std::accumulate(step_seconds.begin(), step_seconds.end(), gap_seconds);
}

const char* Throughput::status() const { return failure.empty() ? "ok" : fits ? "failed" : "does not fit"; }

std::vector<double> Throughput::step_seconds() const {
  std::vector<double> all;
  for (const ThroughputRound& round : rounds)
    all.insert(all.end(), round.step_seconds.begin(), round.step_seconds.end());
  return all;
}

double Throughput::seconds() const {
  double sum = 0;
  for (const ThroughputRound& round : rounds) sum += round.seconds();
  return sum;
}

double Throughput::data_wait() const {
  double waited = 0;
  for (const ThroughputRound& round : rounds) waited += round.data_seconds;
  return measured() ? waited / seconds() : 0;
}

double Throughput::images_per_second() const {
  if (!measured()) return 0;
  double steps = 0;
  for (const ThroughputRound& round : rounds) steps += static_cast<double>(round.step_seconds.size());
  return static_cast<double>(batch) * steps / seconds();
}

std::vector<double> Throughput::round_speeds() const {
  std::vector<double> speeds;
  for (const ThroughputRound& round : rounds)
    speeds.push_back(static_cast<double>(batch) * static_cast<double>(round.step_seconds.size()) /
                     round.seconds());
  return speeds;
}

ConfidenceInterval Throughput::images_per_second_interval() const {
  std::vector<double> logarithms = round_speeds();
  if (logarithms.size() < 2) return {images_per_second(), images_per_second(), 0};
  for (double& value : logarithms) value = std::log(value);
  const auto count = static_cast<double>(logarithms.size());
  const double reach =
      student_quantile(0.5 + kConfidence / 2, count - 1) * standard_deviation(logarithms) / std::sqrt(count);
  if (!informs({std::expm1(-reach), std::expm1(reach), kConfidence}))
    return {images_per_second(), images_per_second(), 0};
  return {images_per_second() * std::exp(-reach), images_per_second() * std::exp(reach), kConfidence};
}

std::vector<std::string> Throughput::disturbances() const {
  std::vector<std::string> texts;
  for (const profile::Finding& finding : profile::findings(telemetry(), !on_gpu, /*alone=*/true))
    if (finding.what == "disturbed") texts.push_back(finding.text);
  return texts;
}

profile::TelemetrySummary Throughput::telemetry() const {
  using Summary = profile::TelemetrySummary;
  using profile::CpuShares;
  Summary all;
  for (const auto value :
       {&Summary::sm_clock_mhz, &Summary::max_sm_clock_mhz, &Summary::memory_clock_mhz, &Summary::power_w,
        &Summary::power_limit_w, &Summary::use_pct, &Summary::cpu_clock_mhz, &Summary::cpu_use})
    all.*value = mean_of(rounds, value);
  double cpu_seconds = 0;
  CpuShares cpu;
  for (const ThroughputRound& round : rounds) {
    const Summary& one = round.telemetry;
    all.seconds += one.seconds;
    all.samples += one.samples;
    all.throttle |= one.throttle;
    all.power_capped += one.power_capped * static_cast<double>(one.samples);
    all.faulted += one.faulted * static_cast<double>(one.samples);
    if (one.temperature_c)
      all.temperature_c = std::max(all.temperature_c.value_or(*one.temperature_c), *one.temperature_c);
    if (one.other_processes)
      all.other_processes = std::max(all.other_processes.value_or(0), *one.other_processes);
    if (!one.cpu) continue;
    cpu_seconds += one.seconds;
    for (const auto share : {&CpuShares::own, &CpuShares::others, &CpuShares::stolen})
      cpu.*share += (*one.cpu).*share * one.seconds;
  }
  if (all.samples > 0) {
    all.power_capped /= static_cast<double>(all.samples);
    all.faulted /= static_cast<double>(all.samples);
  }
  if (cpu_seconds > 0)
    all.cpu = CpuShares{cpu.own / cpu_seconds, cpu.others / cpu_seconds, cpu.stolen / cpu_seconds};
  if (const auto joules = mean_of(rounds, &Summary::joules))
    all.joules = *joules * static_cast<double>(rounds.size());
  return all;
}

std::optional<double> Throughput::joules_per_step() const {
  const std::optional<double> joules = telemetry().joules;
  return joules ? std::optional(*joules / static_cast<double>(step_seconds().size())) : std::nullopt;
}

std::optional<double> Throughput::images_per_joule() const {
  const std::optional<double> joules = joules_per_step();
  return joules && *joules > 0 ? std::optional(static_cast<double>(batch) / *joules) : std::nullopt;
}

std::optional<bool> power_bound(const profile::TelemetrySummary& telemetry) {
  if (!telemetry.power_w || !telemetry.power_limit_w || !telemetry.sm_clock_mhz ||
      !telemetry.max_sm_clock_mhz)
    return {};
  return profile::power_bound(telemetry);
}

std::vector<Throughput> bench_throughput(const ThroughputOptions& options, const ThroughputHooks& hooks) {
  validate(options);
  std::vector<Throughput> settings = settings_of(options);
  for (const Throughput& setting : settings) train::validate(config_of(options, setting));
  std::vector<std::size_t> order(settings.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (int round = 0; round < options.rounds; ++round) {
    Random(0, static_cast<std::uint64_t>(round)).shuffle(order);
    for (const std::size_t at : order) {
      Throughput& setting = settings[at];
      if (!setting.failure.empty()) continue;
      if (!hooks.progress(setting, round, 0)) return settings;
      if (setting.power_limit) hooks.set_power_limit(*setting.power_limit);
      const bool whole = measure_round(
          options, setting, [&](std::int64_t step) { return hooks.progress(setting, round, step); });
      if (!whole) return settings;
      hooks.done(settings, setting);
    }
  }
  return settings;
}

}  // namespace redline::bench
