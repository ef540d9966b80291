// The part of the trainer that evaluates: with the model's weights, and with their moving averages swapped
// in.
#include <algorithm>
#include <cmath>
#include <deque>
#include <utility>

#include "base/error.h"
#include "train/batch_input.h"
#include "train/observe.h"
#include "train/trained_model.h"
#include "train/trainer.h"

namespace redline::train {

bool Trainer::evaluate_all(const std::atomic<bool>& stop) {
  for (const bool averages : {false, true}) {
    if (averages && !config_.model.ema) continue;
    const auto evaluation = evaluate(averages, stop);
    if (!evaluation) return false;
    recorder_.evaluation(*evaluation);
    if (!best_ || evaluation->top1 > best_->top1)
      best_ = Best{steps_, evaluation->top1, evaluation->weights, evaluation->epoch, evaluation->elapsed};
  }
  return true;
}

std::optional<metrics::Evaluation> Trainer::evaluate(bool averages, const std::atomic<bool>& stop) {
  check(eval_ != nullptr, "there is nothing to evaluate on");
  // Puts the weights back however the evaluation ends.
  struct Swapped {
    Trainer* trainer;
    explicit Swapped(Trainer* t) : trainer(t) {
      if (trainer != nullptr) trainer->swap_averages();
    }
    ~Swapped() {
      if (trainer != nullptr) trainer->swap_averages();
    }
  };
  const Swapped swapped(averages ? this : nullptr);
  const Stopwatch watch;
  graph::LossSums sums;
  std::int64_t done = 0;
  std::deque<std::int64_t> under_way;  // samples of batches whose numbers are still to come
  const auto take = [&](bool wait) {
    const auto found = eval_->take_metrics(wait);
    if (!found) return false;
    sums += found->sums;
    done += under_way.front();
    under_way.pop_front();
    recorder_.evaluating(std::min(done * ranks_.size(), val_source_->samples()), val_source_->samples());
    return true;
  };
  recorder_.evaluating(0, val_source_->samples());
  bool abandoned = false;
  val_source_->start_epoch(0);
  const auto stopped = [&] { return stop.load(std::memory_order_relaxed); };
  for (data::Batch batch;;) {
    const bool waited = val_source_->wait(stopped);
    if (waited && !val_source_->next(batch)) break;
    if (ranks_.any(stopped())) {
      while (!under_way.empty()) take(/*wait=*/true);  // the next evaluation begins with none under way
      return {};
    }
    under_way.push_back(batch.count);
    write_batch(*eval_, std::move(batch));
    try {
      eval_->run(backend::Section::compute);
    } catch (const backend::Abandoned&) {
      abandoned = true;  // the next exchange tells the others
      under_way.pop_back();
      continue;
    }
    eval_->request_metrics();
    while (!under_way.empty() && take(under_way.size() > kAhead)) {
    }
  }
  while (!under_way.empty()) take(/*wait=*/true);
  if (ranks_.any(abandoned)) return {};
  ranks_.add_up(sums.values);
  metrics::Evaluation record;
  record.step = steps_;
  record.epoch = epoch_ + 1;
  record.weights = averages ? "ema" : "model";
  record.loss = sums.loss();
  record.top1 = sums.top1();
  record.top5 = sums.top5();
  record.samples = std::llround(sums.samples());
  record.seconds = watch.seconds();
  record.elapsed = time().total();
  return record;
}

void Trainer::swap_averages() {
  std::vector<backend::NamePair> pairs;
  for (const std::string& name : state_->names()) {
    if (std::string original = averaged(*state_, name); !original.empty())
      pairs.emplace_back(std::move(original), name);
  }
  state_->swap(pairs);
}

}  // namespace redline::train
