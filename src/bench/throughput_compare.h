// Compares two sweeps of bench throughput: which settings differ, and which speeds differ by more than the
// spread between rounds and between sweeps explains.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "base/statistics.h"

namespace redline::bench {

// Something that differs between the two.
struct ThroughputDifference {
  std::string name;
  std::string before, after;
  bool unlike = false;  // the work or the device differs, so a change of speed says nothing about the program
};

struct ThroughputChange {
  std::string setting;           // "resnet50 fp16 batch 64", "… at 400 W"
  double before = 0, after = 0;  // images/s
  std::size_t rounds_before = 0, rounds_after = 0;
  double change = 0;  // of images/s, relative
  // The intervals of all rows hold together with 95%. Coverage 0: too few rounds to know a spread, or too
  // uneven.
  ConfidenceInterval interval;
  bool differs() const { return interval.coverage > 0 && (interval.low > 0 || interval.high < 0); }
};

struct ThroughputComparison {
  std::vector<ThroughputDifference> differences;
  std::vector<ThroughputChange> rows;       // settings measured in both
  std::optional<ThroughputChange> overall;  // over all of them, if there are several
  bool unlike() const;
};

// Takes records of `bench throughput`. Throws DataError, naming `path`, if `before` is not one.
//
// Machines change over time: two sweeps differ by at least as much as the rounds within one, and by at least
// one percent (kRunSpread). The intervals allow for that, and for the number of rows.
ThroughputComparison compare_throughput(const nlohmann::ordered_json& before, const std::string& path,
                                        const nlohmann::ordered_json& after);

}  // namespace redline::bench
