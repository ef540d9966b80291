// Finds the fastest of several candidates for a piece of work by timing them within a budget, and remembers
// it by name. Knows nothing about what is timed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/statistics.h"

namespace redline::backend {

// The fastest candidates by key, stored on disk so that later starts need not time them again.
class Choices {
 public:
  // `file` need not exist; empty: nothing is remembered beyond this process.
  explicit Choices(std::string file);

  std::optional<std::string> find(const std::string& key) const;
  void put(const std::string& key, std::string name);
  // Writes what is new. Best effort: a cache that cannot be written costs time, not the run.
  void save();

 private:
  std::string file_;
  std::map<std::string, std::string> names_;
  bool changed_ = false;
};

struct Question {
  std::string key;  // questions with the same key get the same answer, and are asked once
  std::vector<std::string> candidates = {};  // names, the one to be taken without timing first
  bool complete = true;  // all candidates are listed; otherwise the answer is not remembered
  double value = 0;      // how much the answer matters: about the seconds of a step at stake
  // The seconds of one run of a candidate; infinite if it does not run. A rough figure is enough for one that
  // is clearly slower than `best` seconds.
  std::function<double(std::size_t candidate, double best)> time = {};
};

struct TuningRules {
  double* seconds;                  // to spend, less those that tune() has spent; 0: nothing is timed
  std::function<double()> clock;    // seconds
  std::function<bool()> stop = {};  // asked before each candidate; true: enough
  std::function<void(std::int64_t answered, std::int64_t all)> progress = {};
  bool again = false;  // ignores what is remembered
};

struct Answer {
  std::size_t candidate = 0;            // position of the one to take
  std::vector<std::size_t> close = {};  // others that took hardly longer, fastest first, if timed just now
};

// For each question, the candidate to take: the remembered one; else the fastest of those that were timed
// within the budget, which goes to the questions of most value first; else the first. An answer is remembered
// once all candidates were timed, so that later runs time what the budget left out. Several calls can share a
// budget.
std::vector<Answer> tune(const std::vector<Question>& questions, Choices& choices, const TuningRules& rules);

// Candidates of one key that are about equally fast by themselves. Which is best for a training step, only
// the step can tell: in it, others share the power, the memory bandwidth and the caches.
struct Alternatives {
  std::string key;
  std::vector<std::size_t> questions = {};   // that have this key
  std::vector<std::size_t> candidates = {};  // positions, the one taken so far first
  std::vector<std::string> names = {};       // of those candidates
};

// Of answers that matter to the step, those that matter most first.
std::vector<Alternatives> alternatives_of(const std::vector<Question>& questions,
                                          const std::vector<Answer>& answers);

// Runs a step several times and returns the seconds of one run.
using TimedStep = std::function<double()>;

struct StepRules {
  // Builds the step with these candidates: for each Alternatives, a position among them.
  std::function<TimedStep(const std::vector<std::size_t>& choice)> build;
  double seconds;  // to spend, on the first alternatives first
  std::function<double()> clock;
  std::function<bool()> stop = {};  // asked before each pair of measurements; true: enough
  std::function<void(std::int64_t compared, std::int64_t all)> progress = {};
};

struct StepComparison {
  std::vector<std::size_t> choice;     // as StepRules::build takes it
  std::optional<Change> change = {};   // of the step's time, if another candidate was taken anywhere
  double before = kNaN, after = kNaN;  // with a change: seconds of a step, the medians
  bool stopped = false;                // by rules.stop
};

// Compares the step with each alternative to the step without it, in turns, and takes what makes it faster
// beyond noise. Answers are remembered as tune() does.
StepComparison compare_in_step(const std::vector<Alternatives>& all, Choices& choices,
                               const StepRules& rules);

}  // namespace redline::backend
