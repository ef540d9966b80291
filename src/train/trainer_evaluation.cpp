// The part of the trainer that evaluates: on the model's weights, and on their moving averages put in place
// of them.
#include <algorithm>
#include <array>
#include <cmath>
#include <deque>

#include "base/error.h"
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
  struct Exchange {
    Trainer* trainer;
    explicit Exchange(Trainer* t) : trainer(t) {
      if (trainer != nullptr) trainer->exchange_averages();
    }
    ~Exchange() {
      if (trainer != nullptr) trainer->exchange_averages();
    }
  };
  const Exchange exchange(averages ? this : nullptr);
  const Stopwatch watch;
  Totals totals;
  std::int64_t done = 0;
  std::deque<std::int64_t> under_way;  // samples of batches whose numbers are still to come
  const auto take = [&](bool wait) {
    const auto found = eval_->take_metrics(wait);
    if (!found) return false;
    totals.add(*found);
    done += under_way.front();
    under_way.pop_front();
    recorder_.evaluating(std::min(done * ranks_.size(), val_source_->samples()), val_source_->samples());
    return true;
  };
  recorder_.evaluating(0, val_source_->samples());
  val_source_->start_epoch(0);
  const auto next = [&](data::Batch& batch) {
    eval_->inputs_taken();
    return val_source_->next(batch);
  };
  for (data::Batch batch; next(batch);) {
    if (ranks_.any(stop.load(std::memory_order_relaxed))) {
      while (!under_way.empty()) take(/*wait=*/true);  // the next evaluation begins with none under way
      return {};
    }
    write_batch(*eval_, batch);
    eval_->run(backend::Section::compute);
    eval_->request_metrics();
    under_way.push_back(batch.count);
    while (!under_way.empty() && take(under_way.size() > kAhead)) {
    }
  }
  while (!under_way.empty()) take(/*wait=*/true);
  std::array<double, 4> sums{totals.loss, totals.correct1, totals.correct5, totals.samples};
  ranks_.add_up(sums);
  totals = {sums[0], sums[1], sums[2], sums[3]};
  metrics::Evaluation record;
  record.step = steps_;
  record.epoch = epoch_ + 1;
  record.weights = averages ? "ema" : "model";
  record.loss = totals.mean(totals.loss);
  record.top1 = totals.mean(totals.correct1);
  record.top5 = totals.mean(totals.correct5);
  record.samples = std::llround(totals.samples);
  record.seconds = watch.seconds();
  record.elapsed = time().total();
  return record;
}

void Trainer::exchange_averages() {
  std::vector<float> value, average;
  for (const std::string& name : state_->names()) {
    const std::string original = averaged(*state_, name);
    if (original.empty()) continue;
    const auto elements = static_cast<std::size_t>(state_->tensor(name).shape.elements());
    value.resize(elements);
    average.resize(elements);
    state_->read(original, value);
    state_->read(name, average);
    state_->write(original, average);
    state_->write(name, value);
  }
}

}  // namespace redline::train
