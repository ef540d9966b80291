#include "metrics/recorder.h"

#include <exception>

#include <fmt/format.h>

namespace redline::metrics {

Gap& Gap::operator+=(const Gap& other) {
  data += other.data;
  host += other.host;
  exchange += other.exchange;
  evaluation += other.evaluation;
  checkpoint += other.checkpoint;
  return *this;
}

double Step::images_per_second() const {
  const double taken = training_seconds();
  return taken > 0 ? static_cast<double>(samples) / taken : 0;
}

double Step::data_wait() const {
  const double taken = training_seconds();
  return taken > 0 ? gap.data / taken : 0;
}

std::string training_loss_name(const RunInfo& info) {
  return info.label_smoothing > 0 ? fmt::format("loss (label smoothing {:g})", info.label_smoothing) : "loss";
}

void Recorder::begin(const RunInfo& info) {
  for (const auto& sink : sinks_) sink->begin(info);
}

void Recorder::epoch(std::int64_t epoch) {
  for (const auto& sink : sinks_) sink->epoch(epoch);
}

void Recorder::step(const Step& step) {
  for (const auto& sink : sinks_) sink->step(step);
}

void Recorder::evaluating(std::int64_t done, std::int64_t total) {
  for (const auto& sink : sinks_) sink->evaluating(done, total);
}

void Recorder::evaluation(const Evaluation& evaluation) {
  for (const auto& sink : sinks_) sink->evaluation(evaluation);
}

void Recorder::picture(const Picture& picture) {
  for (const auto& sink : sinks_) sink->picture(picture);
}

void Recorder::histogram(const Histogram& histogram) {
  for (const auto& sink : sinks_) sink->histogram(histogram);
}

void Recorder::checkpoint(const Checkpoint& checkpoint) {
  for (const auto& sink : sinks_) sink->checkpoint(checkpoint);
}

void Recorder::notice(const Notice& notice) {
  for (const auto& sink : sinks_) sink->notice(notice);
}

void Recorder::flush() {
  for (const auto& sink : sinks_) sink->flush();
}

void Recorder::end(const End& end) {
  std::exception_ptr failure;
  for (const auto& sink : sinks_) {
    try {
      sink->end(end);
    } catch (...) {
      if (!failure) failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace redline::metrics
