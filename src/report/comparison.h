// Compares runs: which settings differ, which results can still be compared, and what changed.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/statistics.h"
#include "report/summary.h"

namespace redline::report {

// Repeats: runs on the same machine with the same settings, except for name, seed and output folder.
// Differences between groups are judged against the spread within them.
struct RunGroup {
  std::string name;               // the first run's, and how many repeats follow
  std::vector<std::size_t> runs;  // indices, ascending
};
std::vector<RunGroup> groups_of(const std::vector<const Run*>& runs);

// An option or fact that is not the same in all runs.
struct Difference {
  std::string name;
  std::vector<std::string> values;  // one per run; "" where missing
  // What it makes incomparable. Another model, image size, data set or number of classes changes the work of
  // an image, another batch size that of a step; other validation images change what the accuracy means, and
  // label smoothing or mixed images what the training loss is.
  bool unlike_speed = false, unlike_step = false, unlike_accuracy = false, unlike_loss = false;
};
std::vector<Difference> differences(const std::vector<const Run*>& runs);

// One quantity across the runs.
struct Comparison {
  std::string name, unit;
  enum class Better { higher, lower, neither } better = Better::neither;
  enum class Kind { speed, step, accuracy, loss, other } kind = Kind::other;  // the first three are judged
  std::vector<std::optional<double>> values;                                  // one per run
  // One per group, against the first group; empty for the first and where the noise is unknown. Absolute for
  // fractions (unit "part"), relative otherwise.
  std::vector<std::optional<Change>> changes;
  // One per group: "faster", "slower", "better", "worse", "same" or "undecided"; "unlike" where the runs are
  // not comparable; "" where there is nothing to judge.
  std::vector<std::string> verdicts;
  Kind likeness = kind;  // in what the runs must be alike for it to be comparable

  bool judged() const { return timed() || kind == Kind::accuracy; }
  bool timed() const { return kind == Kind::speed || kind == Kind::step; }  // one value for each step
  bool by_difference() const { return unit == "part"; }
};

// Smaller differences in accuracy, as a fraction, count as "same".
inline constexpr double kSameAccuracy = 0.005;

struct Compared {
  std::vector<RunGroup> groups;  // all are compared with the first
  std::vector<Difference> differences;
  std::vector<Comparison> rows;
  // One list per group, for people: why it cannot be compared with the first, and what would settle an
  // undecided verdict.
  std::vector<std::vector<std::string>> unlike, advice;
};

// `judge_unlike`: give verdicts even where runs are not comparable.
Compared compare(const std::vector<const Run*>& runs, const std::vector<RunSummary>& summaries,
                 bool judge_unlike = false);

// A group's value: the mean over those of its runs that have one; the geometric one where changes are
// relative, so that a change is what the values beside it say.
std::optional<double> value_of(const Comparison& row, const RunGroup& group);

}  // namespace redline::report
