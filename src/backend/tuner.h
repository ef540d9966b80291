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
  std::string key;
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
};

// For each question, the position of the candidate to take: the remembered one; else the fastest of those
// that were timed within the budget, which goes to the questions of most value first; else the first. An
// answer is remembered once all candidates were timed, so that later runs time what the budget left out.
// Several calls can share a budget.
std::vector<std::size_t> tune(const std::vector<Question>& questions, Choices& choices,
                              const TuningRules& rules);

}  // namespace redline::backend
