// The training loop: batches in, updates of the weights, records out. It knows plans, a backend, batch
// sources, the recorder and the checkpointer, and nothing below them.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "data/batch_source.h"
#include "metrics/recorder.h"
#include "profile/session.h"
#include "train/checkpointer.h"
#include "train/config.h"
#include "train/folded.h"
#include "train/loss_watch.h"
#include "train/ranks.h"
#include "train/schedule.h"
#include "train/setup.h"
#include "train/step_clock.h"

namespace redline::train {

// Updates in an epoch of so many batches: those left over after whole groups of --accumulate are not used.
// Throws UsageError when an epoch has no whole group.
std::int64_t steps_per_epoch(const Config& config, std::int64_t batches);

class Trainer {
 public:
  // Compiles all plans on one state and gives the weights their initial values, a function of the seed alone.
  // `config` is resolved and valid. Everything passed by reference outlives the trainer; `val` may be
  // null.
  Trainer(const Config& config, const Plans& plans, backend::Backend& backend, data::BatchSource& train,
          data::BatchSource* val, metrics::Recorder& recorder,
          std::shared_ptr<comm::Communicator> communicator = {});

  // Trains to the end of the schedule, with evaluations, or until an evaluation reaches
  // config.run.target_accuracy or none is better for config.run.patience epochs; false if `stop` was raised
  // first. If the device is the host, `stop` is also DeviceOptions::stop, and abandons a long step without a
  // trace. A step whose gradients are not finite changes nothing but the loss scale; config.run.max_bad_steps
  // of them in a row throw UsageError. Steps are recorded in order, a few steps late if the device works
  // asynchronously; all are recorded when this returns, and before an evaluation. Called once.
  bool run(const std::atomic<bool>& stop);

  // Before run(), with several ranks: sends rank 0's weights and progress to every rank.
  void follow_rank_0();
  // Before run(): continues from a checkpoint whose tensors are in state(). Throws DataError for progress
  // that is impossible in this run.
  void go_on(const Progress& progress);
  // Before run(): takes checkpoints when they are due and at every best evaluation. The checkpointer must
  // outlive the trainer's last call.
  void keep_checkpoints(Checkpointer& checkpointer) { checkpointer_ = &checkpointer; }
  // Before run(): profiles steps. The session must outlive the trainer's last call.
  void profile(profile::Session& session) { session_ = &session; }
  // Before run(): a sweep of learning rates instead of the configuration's schedule. Its loss may diverge, so
  // spikes are not reported.
  void sweep(const Schedule& schedule);
  // Between steps, with a checkpointer: takes a checkpoint now, unless can_save() is false.
  void save_checkpoint();
  // While the result lives, time between steps counts as checkpoint time: waiting until one is written is
  // part of its cost.
  StepClock::Span at_checkpoint() { return {clock_, Cause::checkpoint}; }
  // Reports to the recorder and the log what the checkpointer has done; of several failures in a row only the
  // first is logged.
  void report_checkpoints();
  std::int64_t failed_checkpoints() const { return failed_checkpoints_; }  // in a row, up to now
  // False in the middle of a step, and if several steps in a row went wrong: the previous checkpoint is
  // better.
  bool can_save() const;
  // The progress of the run: exact once run() has returned.
  Progress progress() const;
  bool finished()
      const;  // every step and evaluation is done, the target accuracy is reached, or patience is out
  bool target_reached() const;  // by the best evaluation so far; false without a target
  // No evaluation of the last config.run.patience epochs was the best; false where it is 0.
  bool out_of_patience() const;

  // A summary of the run so far, to be reported as its end.
  metrics::End summary(std::string reason, std::string detail) const;

  // Updates of the whole run, including those before it was resumed.
  std::int64_t total_steps() const { return schedule_.total_steps + schedule_shift_; }
  std::int64_t steps_per_epoch() const { return steps_per_epoch_; }
  std::int64_t parameters() const;  // trainable values
  backend::State& state() { return *state_; }
  backend::ExecutableMemory memory() const { return train_->memory(); }

  // One pass over every sample of `val` with the model's weights, or with their moving averages. Empty when
  // `stop` was raised before it was done. The weights are the same after it as before.
  std::optional<metrics::Evaluation> evaluate(bool averages, const std::atomic<bool>& stop);

 private:
  // Steps, or batches of an evaluation, that may be under way while the next is prepared: one runs, one
  // waits.
  static constexpr std::size_t kAhead = 2;

  void compile(const Plans& plans, backend::Backend& backend);
  void initialise();
  void use_size(std::int64_t size);  // from the epoch that begins now on
  // A step that was started but has no results yet.
  struct Started {
    metrics::Step record;
    bool whole = true;         // no rank abandoned it
    bool evaluated = false;    // evaluated_ before it
    std::int64_t batches = 0;  // whose numbers of this rank are there
    graph::LossSums sums;
    Spent time;
    double ended = 0;    // seconds since training began
    double exposed = 0;  // seconds in which this rank waited for others
    std::array<float, graph::kStepChecks> check{};
  };

  bool run_epoch(const std::atomic<bool>& stop);  // what is left of it; false when stopped
  void step();
  bool run_batches(double rate);  // false when this rank abandoned the step
  // Keeps the loss scale and, with other ranks, the statistics of the last complete step: an abandoned step
  // changes the former, a step that a lost peer interrupts changes the latter.
  void keep_unsteady();
  void put_unsteady_back();
  void undo(const Started& step);  // that was abandoned
  // Takes this rank's results of a step; false if they have not arrived and `wait` is false.
  bool collect(Started& step, bool wait);
  // Records the oldest step under way; false if there is none, or it is not done and `wait` is false. Ranks
  // do this at the same steps, except that rank 0 may finish some earlier to save them.
  bool finish_step(bool wait);
  void record_step(Started& step);
  void finish_steps();  // all of them
  // Adds the other ranks' numbers to those of this rank.
  void combine(Started& own);
  bool stopping(const std::atomic<bool>& stop) const;  // the same on every rank
  // The batch of this number in its step; false if the run was stopped meanwhile, and the step is left.
  bool take_batch(data::Batch& batch, std::int64_t number);
  void record_spread();  // histograms of weights and of the last step's gradients
  void write_scalars(double learning_rate, bool first_of_step);
  void count_bad(const metrics::Step& step);
  [[noreturn]] void give_up(const metrics::Step& step);
  void note_spike(const metrics::Step& step);
  bool all_steps_done() const { return steps_ >= total_steps(); }
  bool epoch_done() const { return step_in_epoch_ >= steps_per_epoch_; }
  bool evaluation_due() const;
  bool evaluate_when_due(const std::atomic<bool>& stop);
  bool evaluate_all(const std::atomic<bool>& stop);
  void save_when_due();
  Spent time() const { return clock_.total(std::chrono::steady_clock::now()); }
  void swap_averages();  // every averaged tensor with its average

  Config config_;
  Ranks ranks_;
  metrics::Recorder& recorder_;
  data::BatchSource& train_source_;
  data::BatchSource* val_source_;
  std::int64_t steps_per_epoch_;
  Schedule schedule_;
  std::shared_ptr<backend::State> state_;
  // Training at each image size, and the one of this epoch; eval_ only with val_source_.
  std::map<std::int64_t, std::unique_ptr<backend::Executable>> by_size_;
  backend::Executable* train_ = nullptr;
  std::unique_ptr<backend::Executable> eval_;
  const bool host_computes_;  // a step is done when run() returns
  const std::size_t ahead_;   // steps that may be under way while the next is prepared

  Checkpointer* checkpointer_ = nullptr;
  profile::Session* session_ = nullptr;
  LossWatch loss_watch_;
  bool sweeping_ = false;
  Folded loss_spikes_, stragglers_;  // warnings of them

  StepClock clock_;
  std::deque<Started> started_;  // oldest first
  std::int64_t steps_ = 0;       // started
  // The next step. step_in_epoch_ reaches steps_per_epoch_ and stays there until the next epoch begins.
  std::int64_t epoch_ = 0, step_in_epoch_ = 0;
  std::int64_t schedule_shift_ = 0;  // updates made before the schedule's first step, by another batch size
  bool mid_step_ = false;            // some of a step's batches have run
  bool evaluated_ = false;           // the evaluation after the last step is done
  std::int64_t failed_checkpoints_ = 0;  // in a row
  std::int64_t recorded_ = 0, samples_ = 0, skipped_ = 0, bad_in_a_row_ = 0;
  double epoch_seconds_ = 0;    // in the recorded steps of the last one's epoch
  double last_loss_scale_ = 1;  // of the last recorded step
  std::optional<Best> best_;
  const std::atomic<bool>* stop_ = nullptr;  // while run() runs
  std::optional<std::int64_t> last_step_;    // that the ranks agreed to make before they stop
  double communication_seconds_ = 0;
  bool peers_lost_ = false;                             // nothing is exchanged any more
  std::map<std::string, std::vector<float>> unsteady_;  // by name; empty where they are not kept
};

}  // namespace redline::train
