// What a run tells in its MLPerf log: the benchmark's names for its options, and whether they are those of
// the closed division.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>

#include "metrics/mlperf.h"
#include "train/config.h"

namespace redline::train {

// Why a run is not of MLPerf Training 4.0's closed division for ResNet, naming the option; empty when no
// option speaks against it. Rules that are not options (which data, which hardware) are the submitter's.
std::string open_division_reason(const Config& config, const metrics::RunInfo& info);

// The facts of a run's log. `config` is resolved, but for the schedule's length, which `info` has.
metrics::MlperfFacts mlperf_facts(const Config& config, const metrics::RunInfo& info,
                                  std::chrono::system_clock::time_point began);

// The log that --mlperf-log names, of a run in `folder`. Throws IoError when it cannot be opened.
std::unique_ptr<metrics::Sink> mlperf_sink(const Config& config, const metrics::RunInfo& info,
                                           const std::filesystem::path& folder,
                                           std::chrono::system_clock::time_point began);

}  // namespace redline::train
