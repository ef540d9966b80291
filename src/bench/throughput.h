// How fast training is, by batch size: whole training steps of the real trainer, with what the device's
// clocks and power did meanwhile. Each setting is measured in several rounds, in another order each, so that
// what changes from one start to the next, and over the sweep, shows as a spread between rounds.
//
// The learning rate is zero: every op of a step runs, and the weights stay as they were initialised, so that
// no measurement can diverge.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "base/error.h"
#include "base/statistics.h"
#include "profile/telemetry.h"
#include "train/config.h"

namespace redline::bench {

struct ThroughputOptions {
  train::Config config;  // data, image size, device …; model, type, batch and length come from below
  std::vector<std::string> models = {"resnet50"};
  std::vector<std::string> dtypes = {"auto"};
  std::vector<std::int64_t> batch_sizes = {1, 2, 4, 8, 16, 32, 64, 96, 128, 256};
  std::vector<int> power_limits;     // watts; empty: the limit stays as it is
  std::int64_t stop_iteration = 60;  // steps of each measurement, the warm-up included
  std::int64_t warmup = 10;          // of these, not counted
  int rounds = 3;
};

// Throws UsageError for lists that are empty or hold nonsense, and when the warm-up leaves nothing to
// measure.
void validate(const ThroughputOptions& options);

// One measurement of a setting. Times are without the warm-up.
struct ThroughputRound {
  std::vector<double> step_seconds;  // by the device's clock, in order
  double gap_seconds = 0;            // that the device stood still between them
  double data_seconds = 0;           // of these, for want of a batch
  std::int64_t skipped = 0;          // steps whose update was left out, as a gradient was not finite
  double warmup_seconds = 0;
  profile::TelemetrySummary telemetry;

  double seconds() const;  // of all steps and the gaps between them
};

// One model, type, batch size and power limit.
struct Throughput {
  std::string model, dtype;
  std::int64_t batch = 0;
  std::optional<int> power_limit;  // watts, as asked for
  std::string device;              // as the backend describes itself
  std::int64_t classes = 0;
  std::int64_t warmup = 0;
  std::uint64_t memory_bytes = 0;  // that the training plan holds, on the device
  std::vector<ThroughputRound> rounds;
  std::string failure;  // why it is not measured, or not in all rounds; empty otherwise
  bool fits = true;     // false when the failure is one of memory
  ExitCode failure_code = ExitCode::ok;

  bool measured() const { return !rounds.empty(); }
  const char* status() const;                // "ok", "does not fit", "failed"
  std::vector<double> step_seconds() const;  // of all rounds
  double seconds() const;                    // of all rounds
  double data_wait() const;                  // part of these in which the device waited for a batch
  double images_per_second() const;          // all images over the time they took
  std::vector<double> round_speeds() const;  // images/s of each round
  // 95%, by the spread between rounds; coverage 0 with a single one, or rounds too uneven to tell.
  ConfidenceInterval images_per_second_interval() const;
  profile::TelemetrySummary telemetry() const;  // of all rounds together
  std::optional<double> joules_per_step() const;
  std::optional<double> images_per_joule() const;
};

// Whether the power limit held the speed down: the GPU drew what it may, and its clock was below the highest.
// Empty where the GPU does not tell.
std::optional<bool> power_bound(const profile::TelemetrySummary& telemetry);

struct ThroughputHooks {
  // Told before each measurement and at each of its steps; false stops.
  std::function<bool(const Throughput& now, int round, std::int64_t step)> progress;
  // Told after each measurement, with every setting of the sweep as far as it is measured, in the order of
  // the options, and the one that is new.
  std::function<void(const std::vector<Throughput>& all, const Throughput& now)> done;
  // Sets the device's power limit; needed with power_limits. What it throws ends the sweep.
  std::function<void(int watts)> set_power_limit;
};

// Every model with every type, batch size and power limit, in every round. What fails is recorded as that,
// is not tried again, and the sweep goes on. Gives what was measured so far when stopped.
std::vector<Throughput> bench_throughput(const ThroughputOptions& options, const ThroughputHooks& hooks);

// The iterations as text lines and a closing summary: batch_<B>.log.
std::string throughput_log(const Throughput& result);
// A line each; the first gives the names of the columns.
std::string throughput_csv(const std::vector<Throughput>& results);
nlohmann::ordered_json to_json(const Throughput& result);

}  // namespace redline::bench
