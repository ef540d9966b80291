#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <vector>

#include "backend/reference/kernels.h"
#include "base/error.h"
#include "graph/operands.h"

namespace redline::backend::reference {

using namespace graph::operands;

namespace {

// How many classes come before the label when classes are ordered by falling logit, equal ones by class
// number. NaN comes before everything, so a NaN logit never makes a label look right.
std::size_t rank_of(std::span<const float> logits, std::size_t label) {
  std::size_t before = 0;
  for (std::size_t k = 0; k < logits.size(); ++k) {
    if (!(logits[k] <= logits[label])) ++before;
    if (k < label && logits[k] == logits[label]) ++before;
  }
  return before;
}

// Log of the softmax of a row, in double.
void log_softmax(std::span<const float> logits, std::vector<double>& result) {
  result.assign(logits.begin(), logits.end());
  const double top = *std::max_element(result.begin(), result.end());
  double sum = 0.0;
  for (double value : result) sum += std::exp(value - top);
  const double shift = top + std::log(sum);
  for (double& value : result) value -= shift;
}

}  // namespace

void softmax_cross_entropy(Arguments& args) {
  const auto logits = args.in(Loss::logits), loss_scale = args.in(Loss::loss_scale),
             weights = args.in(Loss::label_weights);
  const auto labels = args.in_ints(Loss::labels), others = args.in_ints(Loss::other_labels);
  const auto metrics = args.out(Loss::metrics), grad = args.out(Loss::gradient);
  const double smoothing = args.attr<graph::LossAttr>().smoothing;
  const std::size_t batch = labels.size();
  const auto classes = static_cast<std::size_t>(args.input_shape(Loss::logits)[1]);
  const auto samples = static_cast<std::size_t>(
      std::count_if(labels.begin(), labels.end(), [](int label) { return label >= 0; }));
  double loss = 0.0;
  std::size_t correct1 = 0, correct5 = 0;
  std::vector<double> log_p;
  std::fill(grad.begin(), grad.end(), 0.0F);
  for (std::size_t n = 0; n < batch; ++n) {
    if (labels[n] < 0) continue;
    const auto label = static_cast<std::size_t>(labels[n]);
    const bool mixed = !others.empty() && others[n] >= 0;
    const std::size_t other = mixed ? static_cast<std::size_t>(others[n]) : label;
    const double weight = mixed ? static_cast<double>(weights[n]) : 1.0;
    check(std::max(label, other) < classes, "labels {} and {} of row {} are not of {} classes", label, other,
          n, classes);
    const auto row = logits.subspan(n * classes, classes);
    log_softmax(row, log_p);
    double mean = 0.0;
    for (double value : log_p) mean += value / static_cast<double>(classes);
    const double log_target = weight * log_p[label] + (1.0 - weight) * log_p[other];
    loss -= (1.0 - smoothing) * log_target + smoothing * mean;
    const std::size_t rank = rank_of(row, weight >= 0.5 ? label : other);
    correct1 += rank < 1 ? 1 : 0;
    correct5 += rank < std::min<std::size_t>(5, classes) ? 1 : 0;
    if (grad.empty()) continue;
    const double scale =
        (loss_scale.empty() ? 1.0 : static_cast<double>(loss_scale[0])) / static_cast<double>(samples);
    for (std::size_t k = 0; k < classes; ++k) {
      const double on = (k == label ? weight : 0.0) + (k == other ? 1.0 - weight : 0.0);
      const double target = smoothing / static_cast<double>(classes) + (1.0 - smoothing) * on;
      grad[n * classes + k] = static_cast<float>(scale * (std::exp(log_p[k]) - target));
    }
  }
  if (metrics.empty()) return;
  metrics[graph::kLossSum] = static_cast<float>(loss);
  metrics[graph::kCorrect1] = static_cast<float>(correct1);
  metrics[graph::kCorrect5] = static_cast<float>(correct5);
  metrics[graph::kSamples] = static_cast<float>(samples);
}

}  // namespace redline::backend::reference
