// The contents of a run's MLPerf log: its options by the benchmark's names, and whether they follow the
// closed division's rules.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>

#include "metrics/mlperf.h"
#include "train/config.h"

namespace redline::train {

// Why a run is not in MLPerf Training 4.0's closed division for ResNet, naming the option; empty if all
// options follow its rules. Rules that are not options (which data, which hardware) are up to the submitter.
std::string open_division_reason(const Config& config, const metrics::RunInfo& info);

// The facts of a run's log. `config` is resolved, but for the schedule's length, which `info` has.
metrics::MlperfFacts mlperf_facts(const Config& config, const metrics::RunInfo& info,
                                  std::chrono::system_clock::time_point began);

// The log of --mlperf-log for a run in `folder`. Throws IoError if it cannot be opened.
std::unique_ptr<metrics::Sink> mlperf_sink(const Config& config, const metrics::RunInfo& info,
                                           const std::filesystem::path& folder,
                                           std::chrono::system_clock::time_point began);

}  // namespace redline::train
