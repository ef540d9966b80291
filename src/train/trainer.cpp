#include "train/trainer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/quantity.h"
#include "train/batch_input.h"
#include "train/observe.h"
#include "train/trained_model.h"

namespace redline::train {
namespace {

// This many refused steps in a row are more than an adapting loss scale explains.
constexpr std::int64_t kDoubtful = 3;

}  // namespace

std::int64_t steps_per_epoch(const Config& config, std::int64_t batches) {
  const std::int64_t steps = batches / config.optimizer.accumulate;
  if (steps < 1) {
    throw UsageError("an epoch has {} batches of {} images, fewer than --accumulate {}", batches,
                     config.optimizer.batch_size, config.optimizer.accumulate);
  }
  return steps;
}

Trainer::Trainer(const Config& config, const Plans& plans, backend::Backend& backend,
                 data::BatchSource& train, data::BatchSource* val, metrics::Recorder& recorder,
                 std::shared_ptr<comm::Communicator> communicator)
    : config_(config),
      ranks_(std::move(communicator)),
      recorder_(recorder),
      train_source_(train),
      val_source_(val),
      steps_per_epoch_(train::steps_per_epoch(config, train.batches_per_epoch())),
      schedule_(make_schedule(config, steps_per_epoch_)),
      state_(backend.make_state()),
      host_computes_(!backend.runs_ahead()),
      ahead_(ranks_.alone() || !host_computes_ ? kAhead : 0) {
  compile(plans, backend);
  initialise();
}

void Trainer::compile(const Plans& plans, backend::Backend& backend) {
  std::vector<std::shared_ptr<const plan::Plan>> all = plans.smaller;
  all.push_back(plans.train);
  if (val_source_ != nullptr) all.push_back(plans.eval);
  // They share memory, which the first of them sizes.
  std::ranges::stable_sort(all, std::greater(), [](const auto& plan) { return plan->arena_bytes; });
  for (const auto& plan : all) {
    auto executable = backend.compile(plan, state_);
    if (plan == plans.eval)
      eval_ = std::move(executable);
    else
      by_size_[image_size_of(*plan)] = std::move(executable);
  }
  train_ = by_size_.at(image_size_of(*plans.train)).get();
}

void Trainer::use_size(std::int64_t size) {
  finish_steps();
  train_ = by_size_.at(size).get();
  train_source_.set_image_size(static_cast<int>(size));
  if (by_size_.size() == 1) return;
  metrics::Notice notice{steps_ + 1, "image_size", ""};
  notice.text = fmt::format("epoch {} trains on images of {} px", epoch_ + 1, size);
  log_info("{}", notice.text);
  recorder_.notice(notice);
}

void Trainer::initialise() {
  std::vector<float> values;
  for (const std::string& name : state_->names()) {
    graph::Tensor tensor = state_->tensor(name);
    // As the state made them.
    if (tensor.kind == graph::TensorKind::momentum || tensor.kind == graph::TensorKind::scaler) continue;
    if (tensor.kind == graph::TensorKind::average) {
      tensor.name = averaged(*state_, name);  // begins as what it averages
      tensor.kind = state_->tensor(tensor.name).kind;
    }
    values.resize(static_cast<std::size_t>(tensor.shape.elements()));
    graph::initial_value(tensor, static_cast<std::uint64_t>(config_.run.seed), config_.model.zero_init_last,
                         config_.model.name, values);
    state_->write(name, values);
  }
}

std::int64_t Trainer::parameters() const {
  std::int64_t count = 0;
  for (const std::string& name : state_->names()) {
    const graph::Tensor& tensor = state_->tensor(name);
    if (tensor.kind == graph::TensorKind::parameter) count += tensor.shape.elements();
  }
  return count;
}

void Trainer::go_on(const Progress& progress) {
  if (progress.step_in_epoch > steps_per_epoch_ || progress.schedule_step > progress.step) {
    throw DataError("the checkpoint is at step {} of an epoch that has {}", progress.step_in_epoch,
                    steps_per_epoch_);
  }
  steps_ = recorded_ = progress.step;
  epoch_ = progress.epoch;
  step_in_epoch_ = progress.step_in_epoch;
  schedule_shift_ = progress.step - progress.schedule_step;
  evaluated_ = progress.evaluated;
  samples_ = progress.samples;
  skipped_ = progress.skipped_steps;
  bad_in_a_row_ = progress.bad_in_a_row;
  clock_.go_on({progress.step_seconds, progress.gap});
  epoch_seconds_ = progress.epoch_seconds;
  best_ = progress.best;
}

Progress Trainer::progress() const {
  Progress progress;
  progress.step = steps_;
  progress.epoch = epoch_;
  progress.step_in_epoch = step_in_epoch_;
  progress.schedule_step = steps_ - schedule_shift_;
  progress.evaluated = evaluated_;
  progress.samples = samples_;
  progress.skipped_steps = skipped_;
  progress.bad_in_a_row = bad_in_a_row_;
  const Spent spent = time();
  progress.step_seconds = spent.seconds;
  progress.gap = spent.gap;
  progress.epoch_seconds = epoch_seconds_;
  progress.best = best_;
  return progress;
}

bool Trainer::target_reached() const {
  const double target = config_.run.target_accuracy;
  return target > 0 && best_ && best_->top1 >= target;
}

bool Trainer::out_of_patience() const {
  const std::int64_t patience = config_.run.patience;
  const bool after_epoch = evaluated_ && step_in_epoch_ > 0;  // and the next has not begun
  return patience > 0 && after_epoch && best_ && epoch_ + 1 - best_->epoch >= patience;
}

bool Trainer::finished() const {
  return target_reached() || out_of_patience() ||
         (all_steps_done() && (val_source_ == nullptr || evaluated_));
}

bool Trainer::run(const std::atomic<bool>& stop) {
  stop_ = &stop;
  if (ranks_.any(stop.load(std::memory_order_relaxed))) last_step_ = steps_;
  clock_.start(std::chrono::steady_clock::now());
  for (;;) {
    const bool done = run_epoch(stop) && evaluate_when_due(stop);
    if (!done || all_steps_done() || target_reached() || out_of_patience()) {
      finish_steps();
      if (session_ != nullptr) session_->end_steps();
      return done;
    }
    ++epoch_;
    step_in_epoch_ = 0;
  }
}

bool Trainer::run_epoch(const std::atomic<bool>& stop) {
  if (epoch_done() || all_steps_done()) return true;
  const std::int64_t epochs = (schedule_.total_steps - 1) / steps_per_epoch_ + 1;
  const std::int64_t size = train_size(config_, epoch_, epochs);
  if (size != image_size_of(train_->plan()) || size != train_source_.image_size()) use_size(size);
  recorder_.epoch(epoch_);
  {
    const StepClock::Span span(clock_, Cause::data);
    train_source_.start_epoch(epoch_, step_in_epoch_ * config_.optimizer.accumulate);
  }
  while (!epoch_done() && !all_steps_done()) {
    if (stopping(stop)) return false;
    step();
    if (!evaluation_due()) save_when_due();  // else after the evaluation, which it then holds
  }
  return true;
}

bool Trainer::evaluation_due() const {
  if (val_source_ == nullptr || evaluated_) return false;
  const std::int64_t every = config_.run.eval_every;
  return all_steps_done() || (epoch_done() && every > 0 && (epoch_ + 1) % every == config_.run.eval_offset);
}

bool Trainer::evaluate_when_due(const std::atomic<bool>& stop) {
  if (!evaluation_due()) return true;
  finish_steps();
  ranks_.at("evaluating", steps_);
  {
    const StepClock::Span span(clock_, Cause::evaluation);
    ranks_.broadcast_statistics(*state_);  // each rank's batches moved its own
    if (!evaluate_all(stop)) return false;
  }
  evaluated_ = true;
  const bool best = best_ && best_->step == steps_;
  if (checkpointer_ != nullptr && best && can_save()) {
    save_checkpoint();
  } else {
    save_when_due();
  }
  return true;
}

bool Trainer::can_save() const { return !mid_step_ && bad_in_a_row_ < kDoubtful; }

void Trainer::save_when_due() {
  if (checkpointer_ == nullptr) return;
  report_checkpoints();
  if (can_save() && checkpointer_->due(progress(), epoch_done())) save_checkpoint();
}

void Trainer::save_checkpoint() {
  const Stopwatch stall;
  finish_steps();
  if (!can_save()) return;
  const StepClock::Span span(clock_, Cause::checkpoint);
  ranks_.at("taking a checkpoint", steps_);
  recorder_.flush();
  checkpointer_->save(progress(), stall);
}

void Trainer::report_checkpoints() {
  for (const metrics::Checkpoint& checkpoint : checkpointer_->finished()) {
    recorder_.checkpoint(checkpoint);
    if (checkpoint.error.empty()) {
      if (failed_checkpoints_ > 1)
        log_warning("checkpoints can be written again, after {} that could not", failed_checkpoints_);
      failed_checkpoints_ = 0;
      continue;
    }
    if (++failed_checkpoints_ > 1) continue;
    const auto newest = checkpointer_->newest();
    log_warning(
        "the checkpoint of step {} was not written: {}; {}", checkpoint.step, checkpoint.error,
        newest ? fmt::format("the last good one is {}", checkpoint_name(*newest)) : "there is none yet");
  }
}

void Trainer::write_scalars(double rate, bool first_of_step) {
  std::array<float, graph::kStepScalars> scalars{};
  scalars[graph::kLearningRate] = static_cast<float>(rate);
  scalars[graph::kGradientScale] = 1.0F / static_cast<float>(config_.optimizer.accumulate * ranks_.size());
  scalars[graph::kEmaDecay] = static_cast<float>(ema_decay(config_.model.ema_decay, steps_));
  scalars[graph::kAccumulateKeep] = first_of_step ? 0.0F : 1.0F;
  scalars[graph::kUpdate] = static_cast<float>(steps_ + 1);
  train_->write_input(train_->plan().model.scalars, scalars.data(), sizeof(scalars));
}

void Trainer::step() {
  keep_unsteady();
  if (session_ != nullptr) session_->begin_step(steps_ + 1);
  const double rate = learning_rate(schedule_, steps_ - schedule_shift_);
  Started started;
  started.evaluated = evaluated_;
  try {
    started.whole = run_batches(rate);
  } catch (const comm::PeerError&) {
    peers_lost_ = true;
    put_unsteady_back();
    throw;
  }
  const std::int64_t made = started.record.step = ++steps_;
  started.record.epoch = epoch_;
  started.record.step_in_epoch = step_in_epoch_++;
  started.record.learning_rate = rate;
  started_.push_back(std::move(started));
  mid_step_ = evaluated_ = false;
  // With several ranks, a step finishes only if it does on all of them.
  while (ranks_.alone() ? finish_step(started_.size() > ahead_)
                        : started_.size() > ahead_ && finish_step(/*wait=*/true)) {
  }
  if (steps_ < made) return;  // undone
  const std::int64_t check_every = config_.comm.check_every;
  if (!ranks_.alone() && check_every > 0 && steps_ % check_every == 0) {
    finish_steps();
    ranks_.at("comparing the ranks' weights", steps_);
    ranks_.check_state(*state_, steps_);
  }
  const std::int64_t every = config_.run.histograms_every;
  if (every > 0 && steps_ % every == 0) record_spread();
}

bool Trainer::run_batches(double rate) {
  const std::int64_t batches = config_.optimizer.accumulate;
  for (std::int64_t i = 0; i < batches; ++i) {
    data::Batch batch;
    if (!take_batch(batch, i)) {
      if (i == 0 && ranks_.alone()) return false;  // nothing of the step has run anywhere
      write_scalars(rate, i == 0);
      train_->refuse();
      return false;
    }
    if (steps_ == 0 && i == 0 && (batch.images != nullptr || batch.device_images != nullptr))
      recorder_.picture(batch_picture(batch, train_source_.batch_size(), train_source_.image_size(), 0));
    mid_step_ = true;
    ranks_.at("training", steps_ + 1);
    {
      const profile::Span span(session_, profile::HostWork::inputs);
      write_batch(*train_, std::move(batch));
      write_scalars(rate, i == 0);
    }
    const auto section = i + 1 == batches ? backend::Section::step : backend::Section::compute;
    try {
      if (session_ != nullptr)
        session_->run(*train_, section);
      else
        train_->run(section);
    } catch (const backend::Abandoned&) {
      return false;
    }
    clock_.launched(std::chrono::steady_clock::now());
    train_->request_metrics();
  }
  return true;
}

// Images on a slow disk, or large ones, may take long. On a device that runs ahead, a step that has begun
// here, or will on another rank, cannot be left.
bool Trainer::take_batch(data::Batch& batch, std::int64_t number) {
  ranks_.at("waiting for data", steps_ + 1);
  const profile::Span span(session_, profile::HostWork::data);
  const StepClock::Span waits(clock_, Cause::data);
  const bool may_leave = host_computes_ || (ranks_.alone() && number == 0);
  if (may_leave && !train_source_.wait([this] { return stop_->load(std::memory_order_relaxed); }))
    return false;
  check(train_source_.next(batch), "epoch {} ended before its step {}", epoch_, step_in_epoch_);
  return true;
}

// Only if a step is done when run() returns: weights change after all exchanges, so only the statistics have
// changed. If the device runs ahead, its progress is unknown.
void Trainer::keep_unsteady() {
  if (!host_computes_) return;
  for (const std::string& name : state_->names()) {
    const graph::Tensor& tensor = state_->tensor(name);
    const bool unsteady = tensor.kind == graph::TensorKind::scaler ||
                          (tensor.kind == graph::TensorKind::statistic && !ranks_.alone());
    if (!unsteady) continue;
    std::vector<float>& values = unsteady_[name];
    values.resize(static_cast<std::size_t>(tensor.shape.elements()));
    state_->read(name, values);
  }
}

void Trainer::put_unsteady_back() {
  if (unsteady_.empty()) return;
  for (const auto& [name, values] : unsteady_) state_->write(name, values);
  mid_step_ = false;
}

void Trainer::undo(const Started& step) {
  put_unsteady_back();
  if (session_ != nullptr) session_->drop_step(step.record.step);
  steps_ = step.record.step - 1;
  step_in_epoch_ = step.record.step_in_epoch;
  evaluated_ = step.evaluated;
  last_step_ = steps_;
}

bool Trainer::stopping(const std::atomic<bool>& stop) const {
  return (ranks_.alone() && stop.load(std::memory_order_relaxed)) || (last_step_ && steps_ >= *last_step_);
}

void Trainer::follow_rank_0() {
  ranks_.at("taking rank 0's weights", steps_);
  ranks_.broadcast_state(*state_);
  Progress rank_0 = progress();
  ranks_.broadcast(rank_0);
  go_on(rank_0);
  ranks_.check_state(*state_, steps_);
}

void Trainer::sweep(const Schedule& schedule) {
  schedule_ = schedule;
  sweeping_ = true;
}

}  // namespace redline::train
