// Training speed by batch size: whole steps of the real trainer, with the device's clocks and power
// meanwhile. Each setting is measured in several rounds, each in another order, so that changes between
// starts and over the sweep show as a spread between rounds.
//
// The learning rate is zero: every op of a step runs, but the weights do not change, so no measurement can
// diverge.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "base/error.h"
#include "base/statistics.h"
#include "metrics/records.h"
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
  std::int64_t warmup = 10;          // of these, not timed
  int rounds = 3;
  const std::atomic<bool>* stop = nullptr;  // raised: ends the sweep, in the middle of a step if that is long
};

// Throws UsageError for lists that are empty or have invalid values, and if the warm-up leaves nothing to
// measure.
void validate(const ThroughputOptions& options);

// One measurement of a setting. Times exclude the warm-up.
struct ThroughputRound {
  std::vector<double> step_seconds;  // by the device's clock, in order
  double gap_seconds = 0;            // that the device was idle between them
  double data_seconds = 0;           // of these, waiting for a batch
  std::int64_t skipped = 0;          // steps without an update, because a gradient was not finite
  double warmup_seconds = 0;
  profile::TelemetrySummary telemetry;

  void add(const metrics::Step& step);  // one that is timed
  double seconds() const;               // of all steps and the gaps between them
};

// One model, type, batch size and power limit.
struct Throughput {
  std::string model, dtype;
  std::int64_t batch = 0;
  std::optional<int> power_limit;  // watts, as requested
  std::string device;              // as the backend describes itself
  bool on_gpu = false;
  std::int64_t classes = 0;
  std::int64_t warmup = 0;
  std::uint64_t memory_bytes = 0;  // of the training plan, on the device
  std::vector<ThroughputRound> rounds;
  std::string failure;  // why it was not measured in all rounds; empty otherwise
  bool fits = true;     // false if it failed for lack of memory
  ExitCode failure_code = ExitCode::ok;

  bool measured() const { return !rounds.empty(); }
  const char* status() const;                // "ok", "does not fit", "failed"
  std::vector<double> step_seconds() const;  // of all rounds
  double seconds() const;                    // of all rounds
  double data_wait() const;                  // fraction of these in which the device waited for a batch
  double images_per_second() const;          // all images over their time
  std::vector<double> round_speeds() const;  // images/s of each round
  // 95%, from the spread between rounds; coverage 0 with a single round, or rounds too uneven to tell.
  ConfidenceInterval images_per_second_interval() const;
  profile::TelemetrySummary telemetry() const;    // of all rounds together
  std::vector<std::string> disturbances() const;  // for people: what else used the machine meanwhile
  std::optional<double> joules_per_step() const;
  std::optional<double> images_per_joule() const;
};

// Whether the power limit held the speed down: the GPU drew as much as allowed, and its clock was below the
// highest. Empty if unknown.
std::optional<bool> power_bound(const profile::TelemetrySummary& telemetry);

struct ThroughputHooks {
  // Called before each measurement and at each of its steps; false stops.
  std::function<bool(const Throughput& now, int round, std::int64_t step)> progress;
  // Called after each measurement, with all settings of the sweep as measured so far, in the order of the
  // options, and with the one just measured.
  std::function<void(const std::vector<Throughput>& all, const Throughput& now)> done;
  // Sets the device's power limit; needed with power_limits. An exception from it ends the sweep.
  std::function<void(int watts)> set_power_limit;
};

// Measures every model with every type, batch size and power limit, in every round. A setting that fails is
// recorded as failed and not tried again, and the sweep continues. Returns what was measured so far when
// stopped.
std::vector<Throughput> bench_throughput(const ThroughputOptions& options, const ThroughputHooks& hooks);

// The iterations as text lines and a closing summary: batch_<B>.log.
std::string throughput_log(const Throughput& result);
// One line per result, after a header line.
std::string throughput_csv(const std::vector<Throughput>& results);
nlohmann::ordered_json to_json(const Throughput& result);

}  // namespace redline::bench
