// The part of the trainer that collects the results of steps, a few steps late, adds up those of all ranks,
// and passes them to the recorder.
#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/quantity.h"
#include "train/observe.h"
#include "train/trainer.h"

namespace redline::train {
namespace {

bool all_finite(std::span<const float> values) {
  return std::ranges::all_of(values, [](float value) { return std::isfinite(value); });
}

// "; the gradient of layer4.1.conv2.weight was the first to go wrong": backward gives gradients bucket by
// bucket, in order. A weight that is not finite itself is the deeper cause.
std::string first_bad_tensor(const backend::Executable& executable) {
  const plan::Plan& plan = executable.plan();
  std::vector<float> values;
  const auto bad = [&](graph::TensorId id) {
    values.resize(static_cast<std::size_t>(plan.graph().tensor(id).shape.elements()));
    executable.read(id, values);
    return !all_finite(values);
  };
  for (const graph::TensorId id : plan.graph().of_kind(graph::TensorKind::parameter)) {
    if (bad(id)) return fmt::format("; the weights {} are not finite", plan.graph().tensor(id).name);
  }
  for (const plan::Bucket& bucket : plan.buckets) {
    for (const graph::TensorId id : bucket.gradients) {
      if (bad(id)) return fmt::format("; {} was the first to go wrong", plan.graph().tensor(id).name);
    }
  }
  return {};
}

}  // namespace

void Trainer::record_spread() {
  finish_steps();
  const double scale = last_loss_scale_ * static_cast<double>(config_.optimizer.accumulate * ranks_.size());
  record_histograms(*state_, *train_, 1 / scale, steps_, recorder_);
}

bool Trainer::collect(Started& step, bool wait) {
  for (; step.batches < config_.optimizer.accumulate; ++step.batches) {
    const auto found = train_->take_metrics(wait);
    if (!found) return false;
    step.sums += found->sums;
    step.check = found->check;
    step.time += clock_.ran(found->begin, found->end);
    step.ended = clock_.total().total();
    step.exposed += std::chrono::duration<double>(found->exposed).count();
  }
  return true;
}

bool Trainer::finish_step(bool wait) {
  if (started_.empty()) return false;
  const profile::Span span(session_, profile::HostWork::read);
  try {
    if (started_.front().whole && !collect(started_.front(), wait)) return false;
    record_step(started_.front());
  } catch (const comm::PeerError&) {
    mid_step_ = mid_step_ || started_.size() > 1;  // what the device still had to do stays undone
    peers_lost_ = true;
    throw;
  }
  return true;
}

void Trainer::record_step(Started& oldest) {
  if (!ranks_.alone() && !peers_lost_) combine(oldest);
  if (!oldest.whole) {
    undo(oldest);
    started_.pop_front();
    return;
  }
  metrics::Step record = std::move(oldest.record);
  record.loss = oldest.sums.loss();
  if (std::isnan(record.loss))
    record.loss = std::numeric_limits<double>::quiet_NaN();  // its sign says nothing
  record.top1 = oldest.sums.top1();
  record.top5 = oldest.sums.top5();
  // The step was complete, but the others were lost before their results arrived: these are only this rank's.
  record.samples = std::llround(oldest.sums.samples()) * (peers_lost_ ? ranks_.size() : 1);
  record.gradient_norm = oldest.check[graph::kGradientNorm];
  record.loss_scale = oldest.check[graph::kLossScale];
  record.skipped = oldest.check[graph::kFinite] == 0.0F;
  record.seconds = oldest.time.seconds;
  record.gap = oldest.time.gap;
  record.elapsed = oldest.ended;
  started_.pop_front();
  recorded_ = record.step;
  last_loss_scale_ = record.loss_scale;
  samples_ += record.samples;
  epoch_seconds_ = (record.step_in_epoch == 0 ? 0.0 : epoch_seconds_) + record.training_seconds();
  record.epoch_seconds = epoch_seconds_;
  recorder_.step(record);
  note_spike(record);
  count_bad(record);
}

void Trainer::combine(Started& own) {
  metrics::Step& record = own.record;
  Ranks::Step step;
  step.sums = own.sums;
  step.abandoned = !own.whole;
  step.stop = stop_ != nullptr && stop_->load(std::memory_order_relaxed);
  step.exposed = own.exposed;
  step.work = std::max(0.0, own.time.seconds - own.exposed) + own.time.gap.data + own.time.gap.host;
  {
    const StepClock::Span span(clock_, Cause::exchange);
    ranks_.exchange(step);
  }
  own.sums = step.sums;
  own.whole = !step.abandoned;
  // No rank has begun more steps than these when it learns of this one.
  if (step.stop && !last_step_) last_step_ = record.step + static_cast<std::int64_t>(ahead_);
  record.ranks = ranks_.size();
  record.communication_seconds = step.exposed;
  record.slowest_rank = step.slowest;
  record.slowest_seconds = step.most_work;
  communication_seconds_ += step.exposed;
  if (const auto slow = ranks_.straggler(); slow && ranks_.rank() == 0) {
    if (stragglers_.say()) log_warning("{}{}", *slow, stragglers_.times());
    recorder_.notice({record.step, "straggler", *slow});
  }
}

void Trainer::finish_steps() {
  while (finish_step(/*wait=*/true)) {
  }
}

void Trainer::count_bad(const metrics::Step& step) {
  bad_in_a_row_ = step.skipped ? bad_in_a_row_ + 1 : 0;
  if (!step.skipped) return;
  ++skipped_;
  if (bad_in_a_row_ >= config_.run.max_bad_steps) give_up(step);
}

void Trainer::give_up(const metrics::Step& step) {
  throw UsageError(
      "the gradients were not finite for {} in a row, up to step {}, where the loss was {}{}: lower --lr, "
      "use a longer --lr-warmup-epochs, or check the data",
      counted(bad_in_a_row_, "step"), step.step, step.loss, first_bad_tensor(*train_));
}

void Trainer::note_spike(const metrics::Step& step) {
  if (sweeping_) return;
  const auto spike = loss_watch_.add(step.loss);
  if (!spike) return;
  metrics::Notice notice{step.step, "loss_spike", ""};
  notice.text = fmt::format("the loss of step {} is {:.4g}, far from the {:.4g} of the {} steps before it",
                            step.step, step.loss, spike->median, spike->window);
  if (loss_spikes_.say()) log_warning("{}{}", notice.text, loss_spikes_.times());
  recorder_.notice(notice);
}

metrics::End Trainer::summary(std::string reason, std::string detail) const {
  metrics::End end;
  end.reason = std::move(reason);
  end.detail = std::move(detail);
  end.steps = recorded_;
  end.samples = samples_;
  end.skipped_steps = skipped_;
  const Spent spent = time();
  end.seconds = spent.total();
  end.step_seconds = spent.seconds;
  end.gap = spent.gap;
  end.communication_seconds = communication_seconds_;
  end.ranks = ranks_.speeds();
  if (best_) end.best = metrics::Best{best_->weights, best_->top1, best_->epoch};
  if (const double target = config_.run.target_accuracy; target > 0) {
    const Best best = best_.value_or(Best{});
    end.target = metrics::Target{target, best.top1, best.step, best.epoch, best.elapsed};
  }
  return end;
}

}  // namespace redline::train
