// How fast training is, by batch size: whole training steps of the real trainer, timed one by one, with what
// the device's clocks and power did meanwhile.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "base/statistics.h"
#include "profile/telemetry.h"
#include "train/config.h"

namespace redline::bench {

struct ThroughputOptions {
  train::Config config;  // data, image size, device …; model, type, batch and length come from below
  std::vector<std::string> models = {"resnet50"};
  std::vector<std::string> dtypes = {"auto"};
  std::vector<std::int64_t> batch_sizes = {1, 2, 4, 8, 16, 32, 64, 96, 128, 256};
  std::int64_t stop_iteration = 60;  // steps of each measurement, the warm-up included
  std::int64_t warmup = 10;          // of these, not counted
};

// Throws UsageError for lists that are empty or hold nonsense, and when the warm-up leaves nothing to
// measure.
void validate(const ThroughputOptions& options);

// One model, type and batch size.
struct Throughput {
  std::string model, dtype;
  std::int64_t batch = 0;
  std::string device;   // as the backend describes itself
  std::string refusal;  // why it was not measured (it does not fit); empty when it was
  std::int64_t warmup = 0;
  std::vector<double> step_seconds;  // after the warm-up, in order
  double data_seconds = 0;           // of these, waiting for data
  double warmup_seconds = 0;
  std::uint64_t memory_bytes = 0;       // that the training plan holds, on the device
  profile::TelemetrySummary telemetry;  // of the counted steps

  bool measured() const { return refusal.empty() && !step_seconds.empty(); }
  double total_seconds() const;
  double images_per_second() const;                       // of the median step
  ConfidenceInterval images_per_second_interval() const;  // 95%
  double images_per_joule() const;                        // 0 when no energy is known
};

// Told before each measurement and at each of its steps; false stops.
using ThroughputProgress = std::function<bool(const Throughput& now, std::int64_t step, std::int64_t of)>;
// Told when a measurement is done.
using ThroughputDone = std::function<void(const Throughput&)>;

// Every model with every type and batch size. A batch that does not fit is recorded as that, and the sweep
// goes on. Gives what was measured so far when stopped.
std::vector<Throughput> bench_throughput(const ThroughputOptions& options, const ThroughputProgress& progress,
                                         const ThroughputDone& done);

// The iterations as text lines and a closing summary: batch_<B>.log.
std::string throughput_log(const Throughput& result);
// A line each; the first gives the names of the columns.
std::string throughput_csv(const std::vector<Throughput>& results);
nlohmann::ordered_json to_json(const Throughput& result);

// What changed between a recorded result and this one.
struct ThroughputChange {
  std::string model, dtype;
  std::int64_t batch = 0;
  double before = 0, after = 0;  // images/s
  Change change;                 // of images/s
};
struct ThroughputComparison {
  std::vector<ThroughputChange> batches;  // those that both have
  Change overall;                         // over all of them, as pairs; count 0 with none
};
// `record` is what was written with to_json under "results". Throws DataError, naming `path`, when it is
// none.
ThroughputComparison compare_throughput(const nlohmann::ordered_json& record, const std::string& path,
                                        const std::vector<Throughput>& now);

}  // namespace redline::bench
