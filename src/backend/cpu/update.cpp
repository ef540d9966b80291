// Optimizer steps, averages and accumulation: flat passes over parameters, whatever their layout, because
// padding is zero in every one of their tensors and stays zero.
#include <cmath>
#include <vector>

#include "backend/cpu/flat.h"
#include "backend/cpu/kernels/dispatch.h"
#include "backend/cpu/step.h"

namespace redline::backend::cpu {

Step make_sgd(const OpView& op, Scratch&) {
  const graph::SgdAttr attr = op.attr<graph::SgdAttr>();
  return [=, w = op.in<float>(0), g = op.in<float>(1), v = op.in<float>(2), scalars = op.in<float>(3),
          count = op.in_stored(0)] {
    const SgdStep step{scalars[graph::kLearningRate], scalars[graph::kGradientScale], attr.momentum,
                       attr.weight_decay, attr.nesterov};
    parallel_flat(count, [&](std::int64_t first, std::int64_t n) {
      update_kernels().sgd(n, step, w + first, g + first, v + first);
    });
  };
}

namespace {

double norm_of(const float* x, std::int64_t count, std::vector<double>& parts) {
  parallel_flat(count, [&](std::int64_t first, std::int64_t n) {
    parts[static_cast<std::size_t>(first / kShare)] = update_kernels().sum_of_squares(n, x + first);
  });
  double sum = 0.0;
  for (const double part : parts) sum += part;
  return std::sqrt(sum);
}

}  // namespace

Step make_lars(const OpView& op, Scratch&) {
  const graph::LarsAttr attr = op.attr<graph::LarsAttr>();
  std::vector<double> parts(static_cast<std::size_t>(shares(op.in_stored(0))));
  return [=, w = op.in<float>(0), g = op.in<float>(1), v = op.in<float>(2), scalars = op.in<float>(3),
          count = op.in_stored(0), parts = std::move(parts)]() mutable {
    const float scale = scalars[graph::kGradientScale];
    const double w_norm = norm_of(w, count, parts);
    const double g_norm = norm_of(g, count, parts) * static_cast<double>(scale);
    double ratio = 1.0;
    if (w_norm > 0.0 && g_norm > 0.0) {
      ratio = static_cast<double>(attr.trust) * w_norm /
              (g_norm + static_cast<double>(attr.weight_decay) * w_norm + static_cast<double>(attr.epsilon));
    }
    const auto rate = static_cast<float>(static_cast<double>(scalars[graph::kLearningRate]) * ratio);
    const SgdStep step{rate, scale, attr.momentum, attr.weight_decay, false};
    parallel_flat(count, [&](std::int64_t first, std::int64_t n) {
      update_kernels().lars(n, rate, step, w + first, g + first, v + first);
    });
  };
}

Step make_ema(const OpView& op, Scratch&) {
  return [average = op.in<float>(0), value = op.in<float>(1), scalars = op.in<float>(2),
          count = op.in_stored(0)] {
    const float decay = scalars[graph::kEmaDecay];
    parallel_flat(count, [&](std::int64_t first, std::int64_t n) {
      update_kernels().ema(n, decay, average + first, value + first);
    });
  };
}

Step make_accumulate(const OpView& op, Scratch&) {
  return [total = op.in<float>(0), g = op.in<float>(1), scalars = op.in<float>(2), count = op.in_stored(0)] {
    const float keep = scalars[graph::kAccumulateKeep];
    parallel_flat(count, [&](std::int64_t first, std::int64_t n) {
      update_kernels().accumulate(n, keep, total + first, g + first);
    });
  };
}

// With one rank the sum over ranks is the tensor itself.
Step make_all_reduce(const OpView&, Scratch&) {
  return [] {};
}

}  // namespace redline::backend::cpu
