#include "train/prediction.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <unordered_map>

namespace redline::train {
namespace {

// Why images could not be read, by their path, as far as the loader has met them.
std::unordered_map<std::string, std::string> reasons(const data::Loader& loader) {
  std::unordered_map<std::string, std::string> found;
  for (data::BadSample& bad : loader.bad_samples()) found.emplace(std::move(bad.name), std::move(bad.reason));
  return found;
}

}  // namespace

std::vector<Ranked> likeliest(std::span<const float> logits, std::size_t count) {
  std::vector<std::size_t> labels(logits.size());
  std::iota(labels.begin(), labels.end(), std::size_t{0});
  count = std::min(count, labels.size());
  std::ranges::partial_sort(
      labels, labels.begin() + static_cast<std::ptrdiff_t>(count),
      [&](std::size_t a, std::size_t b) { return logits[a] != logits[b] ? logits[a] > logits[b] : a < b; });
  double sum = 0;
  const double most = logits.empty() ? 0 : logits[labels.front()];
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - most);
  std::vector<Ranked> ranked;
  for (std::size_t i = 0; i < count; ++i)
    ranked.push_back({labels[i], std::exp(static_cast<double>(logits[labels[i]]) - most) / sum});
  return ranked;
}

PredictionCounts predict(const TrainedModel& model, const ForwardOptions& options,
                         const std::shared_ptr<const data::RecordSource>& images,
                         const std::atomic<bool>& stop, const std::function<void(const Prediction&)>& each) {
  ForwardOptions forward = options;
  forward.max_bad = 1;  // each is told, and none ends the work
  forward.batch_size = std::min(forward.batch_size, std::max<std::int64_t>(1, images->count()));
  ForwardPass pass(model, forward, stop);
  const auto batches = pass.batches(images);
  const int size = batches->image_size();
  PredictionCounts counts;
  batches->start_epoch(0);
  const auto stopped = [&] { return stop.load(); };
  for (;;) {
    data::Batch batch;
    const bool waited = batches->wait(stopped);
    if (waited && !batches->next(batch)) break;
    const auto logits = waited ? pass.run(batch) : std::nullopt;
    if (!logits) {
      counts.stopped = true;
      return counts;
    }
    std::unordered_map<std::string, std::string> why;
    for (int row = 0; row < batches->batch_size() && counts.images < images->count(); ++row) {
      Prediction prediction{images->name(counts.images++), {}, {}, nullptr, size};
      if (batch.labels[row] >= 0) {
        prediction.logits = logits->subspan(static_cast<std::size_t>(row) * pass.classes(), pass.classes());
        prediction.pixels = batch.images + static_cast<std::ptrdiff_t>(row) * size * size * 3;
      } else {
        if (why.empty()) why = reasons(*batches);
        prediction.error = why[prediction.image];
        ++counts.unreadable;
      }
      each(prediction);
    }
  }
  return counts;
}

}  // namespace redline::train
