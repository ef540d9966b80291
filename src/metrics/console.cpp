#include "metrics/console.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/quantity.h"
#include "base/text.h"

namespace redline::metrics {
namespace {

constexpr double kRedrawSeconds = 0.1;
constexpr int kMostInWindow = 1000;  // steps that are kept, however rare the lines
constexpr double kPaceSteps = 256;   // over which the time of a step is averaged to predict the end

std::string percent(double fraction) { return fmt::format("{:.1f}%", 100 * fraction); }

std::string scores_text(const Evaluation& evaluation) {
  return fmt::format("top-1 {:.2f}%  top-5 {:.2f}%  loss {:.4f}", 100 * evaluation.top1,
                     100 * evaluation.top5, evaluation.loss);
}

}  // namespace

std::string target_text(const Target& target) {
  std::string text = fmt::format("top-1 {:g}% {}reached", 100 * target.top1, target.reached() ? "" : "not ");
  if (target.step == 0) return text + ": nothing was evaluated";
  text += fmt::format(": {}{:.2f}% after ", target.reached() ? "" : "the best was ", 100 * target.best);
  return text + (target.epoch > 0 ? fmt::format("epoch {} (step {}), {} of training", target.epoch,
                                                target.step, format_duration(target.seconds))
                                  : fmt::format("step {}", target.step));
}

void ConsoleSink::begin(const RunInfo& info) {
  info_ = info;
  if (options_.quiet) return;
  line(fmt::format("{}: {} parameters, {} classes, {} px, {}", info.model,
                   format_count(static_cast<double>(info.parameters)), info.classes, info.image_size,
                   info.dtype + (info.why_dtype.empty() ? "" : fmt::format(" ({})", info.why_dtype))));
  line(fmt::format("data: {}: {} images to train on, {} held out", info.data,
                   format_grouped(info.train_samples), format_grouped(info.val_samples)));
  line(fmt::format("device: {}", info.device));
  std::string batch = std::to_string(info.batch_size);
  for (const std::int64_t times : {info.accumulate, info.ranks})
    if (times > 1) batch = fmt::format("{} x {}", times, batch);
  line(fmt::format("{} of {} image{}, {} an epoch", counted(info.total_steps, "step"), batch,
                   batch == "1" ? "" : "s", counted(info.steps_per_epoch, "step")));
  if (info.label_smoothing > 0)
    line(fmt::format("the training {} is not comparable with that of evaluations", training_loss_name(info)));
}

std::string ConsoleSink::progress_line() const {
  const Step& last = window_.back();
  double loss = 0, top1 = 0, seconds = 0, waited = 0, samples = 0, exposed = 0;
  int good = 0;
  for (const Step& step : window_) {
    if (step.step != first_step_) {
      seconds += step.training_seconds();
      waited += step.gap.data;
      samples += static_cast<double>(step.samples);
      exposed += step.communication_seconds + step.gap.exchange;
    }
    if (step.skipped) continue;
    loss += step.loss;
    top1 += step.top1;
    ++good;
  }
  // At least the current one: a run may have been resumed with fewer images per step.
  const std::int64_t epochs =
      std::max(last.epoch + 1, info_.steps_per_epoch > 0
                                   ? (info_.total_steps + info_.steps_per_epoch - 1) / info_.steps_per_epoch
                                   : 1);
  std::string text =
      fmt::format("epoch {}/{}  step {}/{}", last.epoch + 1, epochs, last.step, info_.total_steps);
  const char* name = info_.label_smoothing > 0 ? "smoothed loss" : "loss";
  if (good > 0) {
    text += fmt::format("  {} {:.4f}  top-1 {}", name, loss / good, percent(top1 / good));
  } else {
    text += fmt::format("  {} {:.4f}", name, last.loss);
  }
  if (seconds > 0)
    text += fmt::format("  {:.1f} images/s  wait {}  left {}", samples / seconds, percent(waited / seconds),
                        format_duration(seconds_left()));
  if (const std::string device = options_.device ? options_.device() : ""; !device.empty())
    text += "  " + device;
  if (last.ranks > 1 && seconds > 0) text += fmt::format("  comm {}", percent(exposed / seconds));
  if (skipped_ > 0) text += fmt::format("  skipped {}", skipped_);
  return text;
}

// Evaluations take as much of the steps to come as they took of those up to the last one.
double ConsoleSink::seconds_left() const {
  const auto to_come = static_cast<double>(info_.total_steps - window_.back().step);
  double seconds = pace_ * to_come;
  if (!evaluations_.empty()) {
    const std::int64_t evaluated = evaluations_.back().step, steps = evaluated - first_step_ + 1;
    if (steps > 0)
      seconds += evaluation_seconds_ * static_cast<double>(info_.total_steps - evaluated) /
                 static_cast<double>(steps);
  }
  return seconds;
}

void ConsoleSink::step(const Step& step) {
  if (step.skipped) ++skipped_;
  if (timed_) {
    ++timed_->steps;
    pace_ += (step.training_seconds() - pace_) / std::min(timed_->steps, kPaceSteps);
    timed_->seconds += step.training_seconds();
    timed_->data += step.gap.data;
    timed_->ranks += step.communication_seconds + step.gap.exchange;
    timed_->samples += static_cast<double>(step.samples);
  } else {
    timed_.emplace();
    first_step_ = step.step;
  }
  window_.push_back(step);
  while (window_.size() > static_cast<std::size_t>(std::clamp(options_.log_every, 1, kMostInWindow)))
    window_.pop_front();
  if (options_.quiet) return;
  if (options_.live) {
    if (due() || step.step == info_.total_steps) live_.draw(progress_line());
  } else if (step.step == 1 || step.step % options_.log_every == 0 || step.step == info_.total_steps) {
    line(progress_line());
  }
}

void ConsoleSink::evaluating(std::int64_t done, std::int64_t total) {
  if (!options_.quiet && options_.live && due())
    live_.draw(fmt::format("evaluating {}/{}", format_grouped(done), format_grouped(total)));
}

void ConsoleSink::evaluation(const Evaluation& evaluation) {
  if (timed_) evaluation_seconds_ += evaluation.seconds;
  std::erase_if(evaluations_,
                [&](const Evaluation& earlier) { return earlier.weights == evaluation.weights; });
  evaluations_.push_back(evaluation);
  if (options_.quiet) return;
  line(fmt::format("{} after step {} (epoch {}): {}  {} in {}",
                   evaluation.weights == "ema" ? "evaluation of the averages" : "evaluation", evaluation.step,
                   evaluation.epoch, scores_text(evaluation), counted(evaluation.samples, "image"),
                   format_duration(evaluation.seconds)));
}

void ConsoleSink::notice(const Notice& notice) {
  if (notice.what == "disturbed" || notice.what == "bound") findings_.push_back(notice);
  if (notice.what == "loss_spike") loss_spikes_.add(notice.step);
  if (notice.what == "straggler") stragglers_.add(notice.step);
}

void ConsoleSink::end(const End& end) {
  line("");
  std::string result = fmt::format("{}: {}, {} in {}", end.reason, counted(end.steps, "step"),
                                   counted(end.samples, "image"), format_duration(end.seconds));
  if (!end.detail.empty()) result += fmt::format(" ({})", end.detail);
  line("  result    " + result);
  for (const Evaluation& last : evaluations_) {
    std::string text = scores_text(last);
    if (end.best && end.best->weights == last.weights && end.best->top1 > last.top1) {
      text += fmt::format("  (best top-1 {:.2f}%{})", 100 * end.best->top1,
                          end.best->epoch > 0 ? fmt::format(" after epoch {}", end.best->epoch) : "");
    }
    line(fmt::format("  {:<9} {}", last.weights == "ema" ? "averages" : "accuracy", text));
  }
  if (end.target) line("  target    " + target_text(*end.target));
  if (timed_ && timed_->seconds > 0) {
    line(fmt::format("  speed     {:.1f} images/s in training{}, {} of the time waiting for data",
                     timed_->samples / timed_->seconds,
                     info_.resumed ? fmt::format(" since step {}", info_.resumed->step) : "",
                     percent(timed_->data / timed_->seconds)));
  }
  if (!end.ranks.empty()) {
    line("  ranks     " + end.ranks);
    if (timed_ && timed_->seconds > 0)
      line(fmt::format("  waiting   {} of the time for other ranks",
                       percent(timed_->ranks / timed_->seconds)));
  }
  if (end.skipped_steps > 0) {
    line(fmt::format("  skipped   {} whose gradients were not finite", counted(end.skipped_steps, "step")));
  }
  if (end.energy_j && end.energy_steps > 0) {
    const double joules = *end.energy_j;
    line(fmt::format("  energy    {}: {} a step, {:.3g} images/J", format_joules(joules),
                     format_joules(joules / static_cast<double>(end.energy_steps)),
                     joules > 0 ? static_cast<double>(end.energy_samples) / joules : 0.0));
  }
  for (const Notice& notice : findings_) line(fmt::format("  {:<9} {}", notice.what, notice.text));
  for (const auto& [words, warned] :
       {std::pair{"of a loss spike", loss_spikes_}, std::pair{"of a slow rank", stragglers_}}) {
    if (warned.count > 1)
      line(fmt::format("  warnings  {} {}, the last at step {}", format_grouped(warned.count), words,
                       warned.last));
  }
  if (!info_.folder.empty()) line("  run       " + info_.folder);
}

bool ConsoleSink::due() {
  if (since_drawn_ && since_drawn_->seconds() < kRedrawSeconds) return false;
  since_drawn_.emplace();
  return true;
}

void ConsoleSink::line(const std::string& text) {
  live_.clear();
  std::fputs((text + "\n").c_str(), options_.out);
  std::fflush(options_.out);
}

}  // namespace redline::metrics
