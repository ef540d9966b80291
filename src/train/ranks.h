// The exchanges of a training run with the other ranks of its job, besides gradients: agreeing to stop,
// adding up metrics, keeping the weights equal, and detecting stragglers. For a single process all of it does
// nothing. Every rank makes the same calls in the same order.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "comm/communicator.h"
#include "train/checkpoint.h"

namespace redline::train {

class Ranks {
 public:
  // Empty: alone.
  explicit Ranks(std::shared_ptr<comm::Communicator> communicator);

  int rank() const { return communicator_->rank(); }
  int size() const { return communicator_->size(); }
  bool alone() const { return size() == 1; }

  // Sets what this rank is doing from now on (comm/position.h); `phase` is a literal.
  void at(const char* phase, std::int64_t step) { communicator_->position().at(phase, step); }
  // Sets the folder for the reports if the job hangs.
  void keep_positions_in(const std::filesystem::path& folder) {
    communicator_->position().keep_in(folder / "hang");
  }

  // Whether any rank says so.
  bool any(bool mine);
  std::int64_t most(std::int64_t mine);
  // Adds up over the ranks, in place.
  void add_up(std::span<double> values) { communicator_->all_reduce(values); }

  // One step, reported by each rank and then known to all.
  struct Step {
    graph::LossSums sums;
    bool stop = false;       // a rank wants the run to end
    bool abandoned = false;  // and did not finish this step, so that no rank counts it
    double work = 0;         // seconds of this rank's part, without waiting for others
    double exposed = 0;      // seconds of waiting for others; afterwards the mean over ranks
    int slowest = 0;         // afterwards: the rank with the most work,
    double most_work = 0;    // and how much that was
  };
  void exchange(Step& step);
  // After each exchange: a message about a rank that has been slower than the others for a while, if there is
  // something new to report.
  std::optional<std::string> straggler();
  // Of the whole run so far: "rank 0 took 1.02 s a step, … "; empty before the first step.
  std::string speeds() const;

  // Sends rank 0's tensors to every rank; or only the statistics, which differ because each rank's own
  // batches moved them.
  void broadcast_state(backend::State& state);
  void broadcast_statistics(backend::State& state);
  // Throws PeerError, naming a rank and the step, if the ranks' parameters or momenta are not bitwise equal.
  void check_state(const backend::State& state, std::int64_t step);
  // Sends rank 0's progress to every rank.
  void broadcast(Progress& progress);
  bool broadcast(bool value);
  std::string broadcast(std::string text);
  // Throws UsageError when a number that must be the same everywhere is not; `what` names it, or what it is a
  // digest of: such a number is not shown.
  enum class Shown { yes, no };
  void must_agree(double value, const std::string& what, Shown shown = Shown::yes);

 private:
  std::string name(int rank) const;  // "rank 3 (node7)"

  std::shared_ptr<comm::Communicator> communicator_;
  std::int64_t steps_ = 0;
  std::vector<double> work_;                 // seconds by rank, of the run
  std::vector<std::vector<double>> window_;  // and of each of the last steps
  int named_ = -1;
};

}  // namespace redline::train
