// Two sweeps of bench throughput beside each other: what was set differently, and which speeds differ by more
// than the spread between rounds and between sweeps explains.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "base/statistics.h"

namespace redline::bench {

// Something that is not the same in both.
struct ThroughputDifference {
  std::string name;
  std::string before, after;
  bool unlike = false;  // other work, or another device: a change of speed says nothing about the program
};

struct ThroughputChange {
  std::string setting;           // "resnet50 fp16 batch 64", "… at 400 W"
  double before = 0, after = 0;  // images/s
  std::size_t rounds_before = 0, rounds_after = 0;
  double change = 0;  // of images/s, relative
  // With the rest of the rows it holds with 95%. Coverage 0: too few rounds to know a spread, or too uneven
  // ones.
  ConfidenceInterval interval;
  bool differs() const { return interval.coverage > 0 && (interval.low > 0 || interval.high < 0); }
};

struct ThroughputComparison {
  std::vector<ThroughputDifference> differences;
  std::vector<ThroughputChange> rows;       // settings that both measured
  std::optional<ThroughputChange> overall;  // over all of them, where there are several
  bool unlike() const;
};

// The records as `bench throughput` writes them. Throws DataError, naming `path`, when `before` is not one.
//
// A sweep is one visit to a machine that changes: two of them differ by at least as much as the rounds within
// one do, and by a percent where the rounds agree better (kRunSpread). Intervals allow for that, and for the
// number of rows.
ThroughputComparison compare_throughput(const nlohmann::ordered_json& before, const std::string& path,
                                        const nlohmann::ordered_json& after);

}  // namespace redline::bench
