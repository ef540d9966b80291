// Several runs beside each other: what was set differently, what that leaves comparable, and what changed.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/statistics.h"
#include "report/summary.h"

namespace redline::report {

// Runs with the same settings on the same machine, that differ by name, seed and output folder at most:
// repeats, whose spread is what a difference is held against.
struct RunGroup {
  std::string name;               // of its first run, and how many more there are
  std::vector<std::size_t> runs;  // indices, rising
};
std::vector<RunGroup> groups_of(const std::vector<const Run*>& runs);

// An option or fact that is not the same in all runs.
struct Difference {
  std::string name;
  std::vector<std::string> values;  // a run each; "" where it is missing
  // What it makes incomparable: with another model, image size, data set or number of classes, a step is
  // other work; with other validation images, an accuracy is of other questions.
  bool unlike_speed = false, unlike_accuracy = false;
};
std::vector<Difference> differences(const std::vector<const Run*>& runs);

// One quantity over the runs.
struct Comparison {
  std::string name, unit;
  enum class Better { higher, lower, neither } better = Better::neither;
  enum class Kind { speed, accuracy, other } kind = Kind::other;  // only the first two are judged
  std::vector<std::optional<double>> values;                      // a run each
  // A group each, against the first; none for the first and where the noise is not known. Of shares it is a
  // difference in parts of one, else a relative change.
  std::vector<std::optional<Change>> changes;
  // A group each: "faster", "slower", "better", "worse", "same", "undecided"; "unlike" where the runs are
  // not comparable; "" where there is nothing to judge.
  std::vector<std::string> verdicts;

  bool judged() const { return kind != Kind::other; }
  bool by_difference() const { return unit == "part"; }
};

// Differences in accuracy below this, in parts of one, are "the same".
inline constexpr double kSameAccuracy = 0.005;

struct Compared {
  std::vector<RunGroup> groups;  // the others are compared with the first
  std::vector<Difference> differences;
  std::vector<Comparison> rows;
  // A group each, for people: why it cannot be called better or worse than the first, and what would settle
  // what is undecided.
  std::vector<std::vector<std::string>> unlike, advice;
};

// `judge_unlike`: give verdicts even where runs are not comparable.
Compared compare(const std::vector<const Run*>& runs, const std::vector<RunSummary>& summaries,
                 bool judge_unlike = false);

// The value of a group: the mean over its runs that have one.
std::optional<double> value_of(const Comparison& row, const RunGroup& group);

}  // namespace redline::report
