// Softmax cross-entropy with label smoothing and mixed labels: loss, accuracy and the gradient of the logits
// in one pass per row.
#include <cmath>
#include <vector>

#include "backend/cpu/kernels/dispatch.h"
#include "backend/cpu/step.h"
#include "backend/cpu/threads.h"

namespace redline::backend::cpu {
namespace {

struct RowResult {
  double loss = 0.0;
  bool correct1 = false, correct5 = false;
};

// How many classes score above the label; equal scores rank by position, NaN ranks above everything.
std::int64_t rank_of(const float* logits, std::int64_t classes, std::int64_t label) {
  const float target = logits[label];
  if (std::isnan(target)) return classes;
  std::int64_t rank = 0;
  for (std::int64_t k = 0; k < classes; ++k) {
    if (!(logits[k] <= target) || (logits[k] == target && k < label)) ++rank;
  }
  return rank;
}

struct Loss {
  std::int64_t rows, classes;
  float smoothing;
  const float* logits;
  const std::int32_t* labels;
  const float* loss_scale;           // null: 1
  const std::int32_t* other_labels;  // null without mixed labels
  const float* label_weights;
  float* metrics;
  std::byte* gradient;  // null outside training
  graph::DType gradient_type;

  // probabilities: `classes` floats of work space, left holding the row's gradient.
  RowResult row(std::int64_t i, float gradient_scale, float* work) const {
    const float* x = logits + i * classes;
    const std::int32_t label = labels[i];
    if (label < 0) {
      std::fill_n(work, classes, 0.0F);
      return {};
    }
    const bool mixed = other_labels != nullptr && other_labels[i] >= 0;
    const std::int32_t other = mixed ? other_labels[i] : label;
    const float weight = mixed ? label_weights[i] : 1.0F;
    float top = -INFINITY;
    double sum_of_logits = 0.0;
    for (std::int64_t k = 0; k < classes; ++k) {
      top = std::max(top, x[k]);
      sum_of_logits += static_cast<double>(x[k]);
    }
    double sum = 0.0;
    for (std::int64_t k = 0; k < classes; ++k) {
      work[k] = std::exp(x[k] - top);
      sum += static_cast<double>(work[k]);
    }
    const double log_sum = std::log(sum) + static_cast<double>(top);
    const auto n = static_cast<double>(classes), s = static_cast<double>(smoothing);
    const double nll = log_sum - static_cast<double>(weight) * static_cast<double>(x[label]) -
                       (1.0 - static_cast<double>(weight)) * static_cast<double>(x[other]);
    const double mean_nll = log_sum - sum_of_logits / n;
    const float normalise = static_cast<float>(1.0 / sum),
                off_target = smoothing / static_cast<float>(classes);
    for (std::int64_t k = 0; k < classes; ++k) work[k] = gradient_scale * (work[k] * normalise - off_target);
    work[label] -= gradient_scale * (1.0F - smoothing) * weight;
    work[other] -= gradient_scale * (1.0F - smoothing) * (1.0F - weight);
    const std::int64_t rank = rank_of(x, classes, weight >= 0.5F ? label : other);
    return {(1.0 - s) * nll + s * mean_nll, rank < 1, rank < std::min<std::int64_t>(5, classes)};
  }

  void run(std::vector<RowResult>& results, std::vector<float>& work) const {
    std::int64_t samples = 0;
    for (std::int64_t i = 0; i < rows; ++i) samples += labels[i] >= 0 ? 1 : 0;
    const float loss = loss_scale == nullptr ? 1.0F : *loss_scale;
    const float scale = samples > 0 ? loss / static_cast<float>(samples) : 0.0F;
    const ActivationKernels* kernels = gradient == nullptr ? nullptr : &activation_kernels(gradient_type);
    parallel_for(rows, [&](std::int64_t i) {
      float* row_work = work.data() + i * classes;
      results[static_cast<std::size_t>(i)] = row(i, scale, row_work);
      if (kernels == nullptr) return;
      kernels->from_float(classes, row_work,
                          gradient + static_cast<std::size_t>(i * classes) * graph::size_of(gradient_type));
    });
    double sums[graph::kLossMetrics] = {};
    for (std::int64_t i = 0; i < rows; ++i) {
      const RowResult& result = results[static_cast<std::size_t>(i)];
      if (labels[i] < 0) continue;
      sums[graph::kLossSum] += result.loss;
      sums[graph::kCorrect1] += result.correct1 ? 1.0 : 0.0;
      sums[graph::kCorrect5] += result.correct5 ? 1.0 : 0.0;
    }
    sums[graph::kSamples] = static_cast<double>(samples);
    for (int m = 0; m < graph::kLossMetrics; ++m) metrics[m] = static_cast<float>(sums[m]);
  }
};

}  // namespace

Step make_softmax_cross_entropy(const OpView& op, Scratch&) {
  using In = operands::Loss;
  const graph::Shape& shape = op.in_tensor(In::logits).shape;
  const Loss loss{shape[0],
                  shape[1],
                  op.attr<graph::LossAttr>().smoothing,
                  op.in<float>(In::logits),
                  op.in<std::int32_t>(In::labels),
                  op.in<float>(In::loss_scale),
                  op.in<std::int32_t>(In::other_labels),
                  op.in<float>(In::label_weights),
                  op.out<float>(In::metrics),
                  op.out(In::gradient),
                  op.out(In::gradient) == nullptr ? graph::DType::f32 : op.out_tensor(In::gradient).dtype};
  std::vector<RowResult> results(static_cast<std::size_t>(shape[0]));
  std::vector<float> work(static_cast<std::size_t>(shape.elements()));
  return [loss, results = std::move(results), work = std::move(work)]() mutable { loss.run(results, work); };
}

}  // namespace redline::backend::cpu
