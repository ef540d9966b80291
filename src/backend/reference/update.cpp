#include <cmath>
#include <cstddef>
#include <span>

#include "backend/reference/kernels.h"

namespace redline::backend::reference {

void accumulate(Arguments& args) {
  const auto dw = args.in(1), scalars = args.in(2);
  const auto total = args.out(0);
  const float keep = scalars[graph::kAccumulateKeep];
  for (std::size_t i = 0; i < total.size(); ++i) total[i] = keep == 0.0F ? dw[i] : keep * total[i] + dw[i];
}

// This backend runs alone: the sum over one rank is already there.
void all_reduce(Arguments&) {}

void sgd(Arguments& args) {
  const auto dw = args.in(1), scalars = args.in(3);
  const auto w = args.out(0), v = args.out(1);
  const auto& attr = args.attr<graph::SgdAttr>();
  const float lr = scalars[graph::kLearningRate], scale = scalars[graph::kGradientScale];
  for (std::size_t i = 0; i < w.size(); ++i) {
    const float g = dw[i] * scale + attr.weight_decay * w[i];
    v[i] = attr.momentum * v[i] + g;
    w[i] -= lr * (attr.nesterov ? g + attr.momentum * v[i] : v[i]);
  }
}

namespace {

double norm_of(std::span<const float> values) {
  double sum = 0.0;
  for (float value : values) sum += static_cast<double>(value) * static_cast<double>(value);
  return std::sqrt(sum);
}

}  // namespace

void lars(Arguments& args) {
  const auto dw = args.in(1), scalars = args.in(3);
  const auto w = args.out(0), v = args.out(1);
  const auto& attr = args.attr<graph::LarsAttr>();
  const float lr = scalars[graph::kLearningRate], scale = scalars[graph::kGradientScale];
  const double w_norm = norm_of(w), g_norm = norm_of(dw) * std::abs(static_cast<double>(scale));
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

void ema(Arguments& args) {
  const auto value = args.in(1), scalars = args.in(2);
  const auto average = args.out(0);
  const float decay = scalars[graph::kEmaDecay];
  for (std::size_t i = 0; i < average.size(); ++i) {
    average[i] = decay * average[i] + (1.0F - decay) * value[i];
  }
}

}  // namespace redline::backend::reference
