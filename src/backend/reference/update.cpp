#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

#include "backend/reference/kernels.h"
#include "graph/operands.h"

namespace redline::backend::reference {

using namespace graph::operands;

namespace {

double sum_of_squares(std::span<const float> values) {
  double sum = 0.0;
  for (float value : values) sum += static_cast<double>(value) * static_cast<double>(value);
  return sum;
}

}  // namespace

void snapshot(Arguments& args) {
  if (args.in(Snapshot::scalars)[graph::kAccumulateKeep] != 0.0F) return;
  for (int i = 0; i < args.outputs(); ++i) std::ranges::copy(args.in(i + 1), args.out(i).begin());
}

void accumulate(Arguments& args) {
  const auto dw = args.in(Accumulate::dw), scalars = args.in(Accumulate::scalars);
  const auto total = args.out(Accumulate::new_total);
  const float keep = scalars[graph::kAccumulateKeep];
  for (std::size_t i = 0; i < total.size(); ++i) total[i] = keep == 0.0F ? dw[i] : keep * total[i] + dw[i];
}

// This backend runs alone: the sum over one rank is already there.
void all_reduce(Arguments&) {}

void gradient_check(Arguments& args) {
  constexpr int kFirst = 4;  // gradient
  const auto check = args.out(GradientCheck::check), squares = args.out(GradientCheck::squares);
  const auto loss_scale = args.out(GradientCheck::new_loss_scale),
             good_steps = args.out(GradientCheck::new_good_steps),
             skipped_steps = args.out(GradientCheck::new_skipped_steps);
  double total = 0.0;
  for (int i = kFirst; i < args.inputs(); ++i) {
    const double sum = sum_of_squares(args.in(i));
    squares[static_cast<std::size_t>(i - kFirst)] = static_cast<float>(sum);
    total += sum;
  }
  const bool finite = std::isfinite(total);
  const double unscale = static_cast<double>(args.in(GradientCheck::scalars)[graph::kGradientScale]) /
                         static_cast<double>(loss_scale[0]);
  check[graph::kFinite] = finite ? 1.0F : 0.0F;
  const auto& attr = args.attr<graph::ScaleAttr>();
  const auto norm = static_cast<float>(std::sqrt(total) * unscale);
  check[graph::kUnscale] = static_cast<float>(unscale) * graph::clip_factor(attr, norm);
  check[graph::kGradientNorm] = norm;
  check[graph::kLossScale] = loss_scale[0];
  check[graph::kTakenUpdates] = args.in(GradientCheck::scalars)[graph::kUpdate] - skipped_steps[0];
  const graph::ScaleState next =
      graph::next_scale(attr, {loss_scale[0], good_steps[0], skipped_steps[0]}, finite);
  loss_scale[0] = next.loss_scale;
  good_steps[0] = next.good_steps;
  skipped_steps[0] = next.skipped_steps;
}

void restore(Arguments& args) {
  if (args.in(Restore::check)[graph::kFinite] != 0.0F) return;
  for (int i = 0; i < args.outputs(); ++i) std::ranges::copy(args.in(i + 1), args.out(i).begin());
}

void sgd(Arguments& args) {
  const auto dw = args.in(Optimizer::dw), scalars = args.in(Optimizer::scalars),
             check = args.in(Optimizer::check);
  if (check[graph::kFinite] == 0.0F) return;
  const auto w = args.out(Optimizer::new_w), v = args.out(Optimizer::new_v);
  const auto& attr = args.attr<graph::SgdAttr>();
  const float lr = scalars[graph::kLearningRate] * attr.rate, scale = check[graph::kUnscale];
  for (std::size_t i = 0; i < w.size(); ++i) {
    const float g = dw[i] * scale + attr.weight_decay * w[i];
    v[i] = attr.momentum * v[i] + g;
    w[i] -= lr * (attr.nesterov ? g + attr.momentum * v[i] : v[i]);
  }
}

void lars(Arguments& args) {
  const auto dw = args.in(Optimizer::dw), scalars = args.in(Optimizer::scalars),
             check = args.in(Optimizer::check);
  if (check[graph::kFinite] == 0.0F) return;
  const auto w = args.out(Optimizer::new_w), v = args.out(Optimizer::new_v);
  const auto& attr = args.attr<graph::LarsAttr>();
  const float lr = scalars[graph::kLearningRate] * attr.rate, scale = check[graph::kUnscale];
  const double w_norm = std::sqrt(sum_of_squares(w)),
               g_norm = std::sqrt(sum_of_squares(dw)) * std::abs(static_cast<double>(scale));
  double ratio = 1.0;
  if (w_norm > 0.0 && g_norm > 0.0) {
    ratio = static_cast<double>(attr.trust) * w_norm /
            (g_norm + static_cast<double>(attr.weight_decay) * w_norm + static_cast<double>(attr.epsilon));
  }
  const auto rate = static_cast<float>(static_cast<double>(lr) * ratio);
  for (std::size_t i = 0; i < w.size(); ++i) {
    v[i] = attr.momentum * v[i] + rate * (dw[i] * scale + attr.weight_decay * w[i]);
    w[i] -= v[i];
  }
}

namespace {

// The mean gradient and the mean of its squares, and Adam's direction: both corrected for having begun at
// zero.
class Moments {
 public:
  Moments(const graph::AdamAttr& attr, std::span<const float> check)
      : attr_(attr),
        scale_(check[graph::kUnscale]),
        correction1_(1.0 - std::pow(static_cast<double>(attr.beta1), check[graph::kTakenUpdates])),
        correction2_(1.0 - std::pow(static_cast<double>(attr.beta2), check[graph::kTakenUpdates])) {}

  void add(float gradient, float& m, float& v) const {
    const float g = gradient * scale_;
    m = attr_.beta1 * m + (1.0F - attr_.beta1) * g;
    v = attr_.beta2 * v + (1.0F - attr_.beta2) * g * g;
  }
  double direction(float m, float v) const {
    const double root = std::sqrt(static_cast<double>(v) / correction2_);
    return static_cast<double>(m) / correction1_ / (root + static_cast<double>(attr_.epsilon));
  }

 private:
  graph::AdamAttr attr_;
  float scale_;
  double correction1_, correction2_;
};

}  // namespace

void adamw(Arguments& args) {
  const auto dw = args.in(Adam::dw), scalars = args.in(Adam::scalars), check = args.in(Adam::check);
  if (check[graph::kFinite] == 0.0F) return;
  const auto w = args.out(Adam::new_w), m = args.out(Adam::new_m), v = args.out(Adam::new_v);
  const auto& attr = args.attr<graph::AdamAttr>();
  const Moments moments(attr, check);
  const double lr = static_cast<double>(scalars[graph::kLearningRate] * attr.rate);
  for (std::size_t i = 0; i < w.size(); ++i) {
    moments.add(dw[i], m[i], v[i]);
    const double kept = static_cast<double>(w[i]) * (1.0 - lr * static_cast<double>(attr.weight_decay));
    w[i] = static_cast<float>(kept - lr * moments.direction(m[i], v[i]));
  }
}

void lamb(Arguments& args) {
  const auto dw = args.in(Adam::dw), scalars = args.in(Adam::scalars), check = args.in(Adam::check);
  if (check[graph::kFinite] == 0.0F) return;
  const auto w = args.out(Adam::new_w), m = args.out(Adam::new_m), v = args.out(Adam::new_v);
  const auto& attr = args.attr<graph::AdamAttr>();
  const Moments moments(attr, check);
  std::vector<double> step(w.size());
  double squares = 0.0;
  for (std::size_t i = 0; i < w.size(); ++i) {
    moments.add(dw[i], m[i], v[i]);
    step[i] =
        moments.direction(m[i], v[i]) + static_cast<double>(attr.weight_decay) * static_cast<double>(w[i]);
    squares += step[i] * step[i];
  }
  const double w_norm = std::sqrt(sum_of_squares(w)), step_norm = std::sqrt(squares);
  const double trust = w_norm > 0.0 && step_norm > 0.0 ? w_norm / step_norm : 1.0;
  const double lr = static_cast<double>(scalars[graph::kLearningRate] * attr.rate);
  for (std::size_t i = 0; i < w.size(); ++i)
    w[i] = static_cast<float>(static_cast<double>(w[i]) - lr * trust * step[i]);
}

void ema(Arguments& args) {
  const auto value = args.in(Ema::value), scalars = args.in(Ema::scalars);
  if (args.in(Ema::check)[graph::kFinite] == 0.0F) return;
  const auto average = args.out(Ema::new_average);
  const float decay = scalars[graph::kEmaDecay];
  for (std::size_t i = 0; i < average.size(); ++i) {
    average[i] = decay * average[i] + (1.0F - decay) * value[i];
  }
}

}  // namespace redline::backend::reference
