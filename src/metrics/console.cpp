#include "metrics/console.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/text.h"

namespace redline::metrics {
namespace {

constexpr double kRedrawSeconds = 0.1;

std::string percent(double fraction) { return fmt::format("{:.1f}%", 100 * fraction); }

// 1281167 -> "1,281,167"
std::string grouped(std::int64_t value) {
  std::string digits = std::to_string(value);
  for (std::ptrdiff_t at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > 0; at -= 3) {
    digits.insert(static_cast<std::size_t>(at), ",");
  }
  return digits;
}

std::string scores_text(const Evaluation& evaluation) {
  return fmt::format("top-1 {:.2f}%  top-5 {:.2f}%  loss {:.4f}", 100 * evaluation.top1,
                     100 * evaluation.top5, evaluation.loss);
}

}  // namespace

void ConsoleSink::begin(const RunInfo& info) {
  info_ = info;
  if (options_.quiet) return;
  line(fmt::format("{}: {} parameters, {} classes, {} px, {}", info.model,
                   format_count(static_cast<double>(info.parameters)), info.classes, info.image_size,
                   info.dtype));
  line(fmt::format("data: {}: {} images to train on, {} held out", info.data, grouped(info.train_samples),
                   grouped(info.val_samples)));
  line(fmt::format("device: {}", info.device));
  std::string batch = std::to_string(info.batch_size);
  for (const std::int64_t times : {info.accumulate, info.ranks})
    if (times > 1) batch = fmt::format("{} x {}", times, batch);
  line(fmt::format("{} steps of {} images, {} steps an epoch", grouped(info.total_steps), batch,
                   grouped(info.steps_per_epoch)));
}

std::string ConsoleSink::progress_line() const {
  const Step& last = window_.back();
  double loss = 0, top1 = 0, seconds = 0, waited = 0, samples = 0;
  int counted = 0;
  for (const Step& step : window_) {
    seconds += step.training_seconds();
    waited += step.gap.data;
    samples += static_cast<double>(step.samples);
    if (step.skipped) continue;
    loss += step.loss;
    top1 += step.top1;
    ++counted;
  }
  const double per_step = seconds / static_cast<double>(window_.size());
  // At least the one that is under way: a run may have gone on with fewer images a step.
  const std::int64_t epochs =
      std::max(last.epoch + 1, info_.steps_per_epoch > 0
                                   ? (info_.total_steps + info_.steps_per_epoch - 1) / info_.steps_per_epoch
                                   : 1);
  std::string text =
      fmt::format("epoch {}/{}  step {}/{}", last.epoch + 1, epochs, last.step, info_.total_steps);
  if (counted > 0) {
    text += fmt::format("  loss {:.4f}  top-1 {}", loss / counted, percent(top1 / counted));
  } else {
    text += fmt::format("  loss {:.4f}", last.loss);
  }
  text += fmt::format("  {:.1f} images/s  wait {}  left {}", seconds > 0 ? samples / seconds : 0.0,
                      percent(seconds > 0 ? waited / seconds : 0.0),
                      format_duration(per_step * static_cast<double>(info_.total_steps - last.step)));
  if (const std::string device = options_.device ? options_.device() : ""; !device.empty())
    text += "  " + device;
  if (last.ranks > 1) {
    double exposed = 0;
    for (const Step& step : window_) exposed += step.communication_seconds;
    text += fmt::format("  comm {}", percent(seconds > 0 ? exposed / seconds : 0.0));
  }
  if (skipped_ > 0) text += fmt::format("  skipped {}", skipped_);
  return text;
}

void ConsoleSink::step(const Step& step) {
  if (step.skipped) ++skipped_;
  window_.push_back(step);
  while (window_.size() > static_cast<std::size_t>(std::max(1, options_.log_every))) window_.pop_front();
  if (options_.quiet) return;
  if (options_.live) {
    if (due() || step.step == info_.total_steps) live_.draw(progress_line());
  } else if (step.step == 1 || step.step % options_.log_every == 0 || step.step == info_.total_steps) {
    line(progress_line());
  }
}

void ConsoleSink::evaluating(std::int64_t done, std::int64_t total) {
  if (!options_.quiet && options_.live && due())
    live_.draw(fmt::format("evaluating {}/{}", grouped(done), grouped(total)));
}

void ConsoleSink::keep(const Evaluation& evaluation) {
  for (Score& score : scores_) {
    if (score.weights != evaluation.weights) continue;
    score.last = evaluation;
    if (evaluation.top1 > score.best.top1) score.best = evaluation;
    return;
  }
  scores_.push_back({evaluation.weights, evaluation, evaluation});
}

void ConsoleSink::evaluation(const Evaluation& evaluation) {
  keep(evaluation);
  if (options_.quiet) return;
  line(fmt::format("{} after step {} (epoch {}): {}  {} images in {}",
                   evaluation.weights == "ema" ? "evaluation of the averages" : "evaluation", evaluation.step,
                   evaluation.epoch, scores_text(evaluation), grouped(evaluation.samples),
                   format_duration(evaluation.seconds)));
}

void ConsoleSink::end(const End& end) {
  line("");
  std::string result = fmt::format("{}: {} steps, {} images in {}", end.reason, grouped(end.steps),
                                   grouped(end.samples), format_duration(end.seconds));
  if (!end.detail.empty()) result += fmt::format(" ({})", end.detail);
  line("  result    " + result);
  for (const Score& score : scores_) {
    std::string text = scores_text(score.last);
    if (score.best.top1 > score.last.top1) {
      text += fmt::format("  (best top-1 {:.2f}% after epoch {})", 100 * score.best.top1, score.best.epoch);
    }
    line(fmt::format("  {:<9} {}", score.weights == "ema" ? "averages" : "accuracy", text));
  }
  if (const double train = end.train_seconds(); train > 0) {
    line(fmt::format("  speed     {:.1f} images/s in training, {} of it waiting for data",
                     static_cast<double>(end.samples) / train, percent(end.gap.data / train)));
  }
  if (!end.ranks.empty()) {
    line("  ranks     " + end.ranks);
    line(fmt::format(
        "  waiting   {} of the time for numbers from other ranks",
        percent(end.train_seconds() > 0 ? end.communication_seconds / end.train_seconds() : 0.0)));
  }
  if (end.skipped_steps > 0) {
    line(fmt::format("  skipped   {} steps whose gradients were not finite", grouped(end.skipped_steps)));
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
