// Optimizer steps, averages and accumulation: flat passes over parameters, whatever their layout, because
// padding is zero in every one of their tensors and stays zero.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "backend/cpu/flat.h"
#include "backend/cpu/kernels/dispatch.h"
#include "backend/cpu/step.h"

namespace redline::backend::cpu {

using operands::Adam;

namespace {

double sum_of_squares(const float* x, std::int64_t count, std::vector<double>& parts) {
  parallel_flat(count, [&](std::int64_t first, std::int64_t n) {
    parts[static_cast<std::size_t>(first / kShare)] = update_kernels().sum_of_squares(n, x + first);
  });
  double sum = 0.0;
  for (std::int64_t i = 0; i < shares(count); ++i) sum += parts[static_cast<std::size_t>(i)];
  return sum;
}

// Tensors that are copied together; all are small.
struct Copies {
  struct One {
    const float* from;
    float* to;
    std::int64_t count;
  };
  std::vector<One> all;

  // Of inputs [1, 1 + outputs) to the outputs.
  explicit Copies(const OpView& op) {
    for (int i = 0; i < op.outputs(); ++i)
      all.push_back({op.in<float>(i + 1), op.out<float>(i), op.out_stored(i)});
  }
  void run() const {
    for (const One& one : all) std::copy_n(one.from, one.count, one.to);
  }
};

}  // namespace

Step make_snapshot(const OpView& op, Scratch&) {
  return [copies = Copies(op), scalars = op.in<float>(operands::Snapshot::scalars)] {
    if (scalars[graph::kAccumulateKeep] == 0.0F) copies.run();
  };
}

Step make_restore(const OpView& op, Scratch&) {
  return [copies = Copies(op), check = op.in<float>(operands::Restore::check)] {
    if (check[graph::kFinite] == 0.0F) copies.run();
  };
}

Step make_gradient_check(const OpView& op, Scratch&) {
  using Check = operands::GradientCheck;
  struct Gradient {
    const float* g;
    std::int64_t count;
  };
  std::vector<Gradient> gradients;
  std::int64_t most = 0;
  for (int i = Check::first_gradient; i < op.inputs(); ++i) {
    gradients.push_back({op.in<float>(i), op.in_stored(i)});
    most = std::max(most, op.in_stored(i));
  }
  return
      [attr = op.attr<graph::ScaleAttr>(), scalars = op.in<float>(Check::scalars),
       check = op.out<float>(Check::check), squares = op.out<float>(Check::squares),
       loss_scale = op.out<float>(Check::new_loss_scale), good_steps = op.out<float>(Check::new_good_steps),
       skipped_steps = op.out<float>(Check::new_skipped_steps), gradients = std::move(gradients),
       parts = std::vector<double>(static_cast<std::size_t>(shares(most)))]() mutable {
        double total = 0.0;
        for (std::size_t i = 0; i < gradients.size(); ++i) {
          const double sum = sum_of_squares(gradients[i].g, gradients[i].count, parts);
          if (squares != nullptr) squares[i] = static_cast<float>(sum);
          total += sum;
        }
        const bool finite = std::isfinite(total);
        const float unscale = scalars[graph::kGradientScale] / *loss_scale;
        check[graph::kFinite] = finite ? 1.0F : 0.0F;
        const auto norm = static_cast<float>(std::sqrt(total) * static_cast<double>(unscale));
        check[graph::kUnscale] = unscale * graph::clip_factor(attr, norm);
        check[graph::kGradientNorm] = norm;
        check[graph::kLossScale] = *loss_scale;
        check[graph::kTakenUpdates] = scalars[graph::kUpdate] - *skipped_steps;
        const graph::ScaleState next =
            graph::next_scale(attr, {*loss_scale, *good_steps, *skipped_steps}, finite);
        *loss_scale = next.loss_scale;
        *good_steps = next.good_steps;
        *skipped_steps = next.skipped_steps;
      };
}

Step make_sgd(const OpView& op, Scratch&) {
  using operands::Optimizer;
  const graph::SgdAttr attr = op.attr<graph::SgdAttr>();
  return [=, w = op.in<float>(Optimizer::w), g = op.in<float>(Optimizer::dw), v = op.in<float>(Optimizer::v),
          scalars = op.in<float>(Optimizer::scalars), check = op.in<float>(Optimizer::check),
          count = op.in_stored(Optimizer::w)] {
    if (check[graph::kFinite] == 0.0F) return;
    const SgdStep step{scalars[graph::kLearningRate] * attr.rate, check[graph::kUnscale], attr.momentum,
                       attr.weight_decay, attr.nesterov};
    parallel_flat(count, [&](std::int64_t first, std::int64_t n) {
      update_kernels().sgd(n, step, w + first, g + first, v + first);
    });
  };
}

Step make_lars(const OpView& op, Scratch&) {
  using operands::Optimizer;
  const graph::LarsAttr attr = op.attr<graph::LarsAttr>();
  std::vector<double> parts(static_cast<std::size_t>(shares(op.in_stored(Optimizer::w))));
  return [=, w = op.in<float>(Optimizer::w), g = op.in<float>(Optimizer::dw), v = op.in<float>(Optimizer::v),
          scalars = op.in<float>(Optimizer::scalars), check = op.in<float>(Optimizer::check),
          count = op.in_stored(Optimizer::w), parts = std::move(parts)]() mutable {
    if (check[graph::kFinite] == 0.0F) return;
    const float scale = check[graph::kUnscale];
    const double w_norm = std::sqrt(sum_of_squares(w, count, parts));
    const double g_norm = std::sqrt(sum_of_squares(g, count, parts)) * static_cast<double>(scale);
    double ratio = 1.0;
    if (w_norm > 0.0 && g_norm > 0.0) {
      ratio = static_cast<double>(attr.trust) * w_norm /
              (g_norm + static_cast<double>(attr.weight_decay) * w_norm + static_cast<double>(attr.epsilon));
    }
    const auto rate =
        static_cast<float>(static_cast<double>(scalars[graph::kLearningRate] * attr.rate) * ratio);
    const SgdStep step{rate, scale, attr.momentum, attr.weight_decay, false};
    parallel_flat(count, [&](std::int64_t first, std::int64_t n) {
      update_kernels().lars(n, rate, step, w + first, g + first, v + first);
    });
  };
}

namespace {

struct AdamTensors {
  float *w, *g, *m, *v;
  const float *scalars, *check;
  std::int64_t count;

  explicit AdamTensors(const OpView& op)
      : w(op.in<float>(Adam::w)),
        g(op.in<float>(Adam::dw)),
        m(op.in<float>(Adam::m)),
        v(op.in<float>(Adam::v)),
        scalars(op.in<float>(Adam::scalars)),
        check(op.in<float>(Adam::check)),
        count(op.in_stored(Adam::w)) {}

  AdamStep step(const graph::AdamAttr& attr) const {
    const auto correction = [&](float beta) {
      return 1.0 - std::pow(static_cast<double>(beta), static_cast<double>(check[graph::kTakenUpdates]));
    };
    return {check[graph::kUnscale],
            attr.beta1,
            attr.beta2,
            attr.epsilon,
            static_cast<float>(1.0 / correction(attr.beta1)),
            static_cast<float>(1.0 / std::sqrt(correction(attr.beta2)))};
  }
};

}  // namespace

Step make_adamw(const OpView& op, Scratch&) {
  return [t = AdamTensors(op), attr = op.attr<graph::AdamAttr>()] {
    if (t.check[graph::kFinite] == 0.0F) return;
    const AdamStep step = t.step(attr);
    const float rate = t.scalars[graph::kLearningRate] * attr.rate, keep = 1.0F - rate * attr.weight_decay;
    parallel_flat(t.count, [&](std::int64_t i, std::int64_t n) {
      update_kernels().adamw(n, step, keep, rate, t.w + i, t.g + i, t.m + i, t.v + i);
    });
  };
}

Step make_lamb(const OpView& op, Scratch&) {
  std::vector<double> parts(static_cast<std::size_t>(shares(op.in_stored(Adam::w))));
  return [t = AdamTensors(op), attr = op.attr<graph::AdamAttr>(), parts = std::move(parts)]() mutable {
    if (t.check[graph::kFinite] == 0.0F) return;
    const AdamStep step = t.step(attr);
    const double w_norm = std::sqrt(sum_of_squares(t.w, t.count, parts));
    parallel_flat(t.count, [&](std::int64_t i, std::int64_t n) {
      parts[static_cast<std::size_t>(i / kShare)] =
          update_kernels().lamb_moments(n, step, attr.weight_decay, t.w + i, t.g + i, t.m + i, t.v + i);
    });
    const double step_norm = std::sqrt(std::accumulate(parts.begin(), parts.end(), 0.0));
    const double trust = w_norm > 0.0 && step_norm > 0.0 ? w_norm / step_norm : 1.0;
    const auto rate =
        static_cast<float>(static_cast<double>(t.scalars[graph::kLearningRate] * attr.rate) * trust);
    parallel_flat(t.count, [&](std::int64_t i, std::int64_t n) {
      update_kernels().lamb(n, step, attr.weight_decay, rate, t.w + i, t.m + i, t.v + i);
    });
  };
}

Step make_ema(const OpView& op, Scratch&) {
  using operands::Ema;
  return [average = op.in<float>(Ema::average), value = op.in<float>(Ema::value),
          scalars = op.in<float>(Ema::scalars), check = op.in<float>(Ema::check),
          count = op.in_stored(Ema::average)] {
    if (check[graph::kFinite] == 0.0F) return;
    const float decay = scalars[graph::kEmaDecay];
    parallel_flat(count, [&](std::int64_t first, std::int64_t n) {
      update_kernels().ema(n, decay, average + first, value + first);
    });
  };
}

Step make_accumulate(const OpView& op, Scratch&) {
  using operands::Accumulate;
  return [total = op.in<float>(Accumulate::total), g = op.in<float>(Accumulate::dw),
          scalars = op.in<float>(Accumulate::scalars), count = op.in_stored(Accumulate::total)] {
    const float keep = scalars[graph::kAccumulateKeep];
    parallel_flat(count, [&](std::int64_t first, std::int64_t n) {
      update_kernels().accumulate(n, keep, total + first, g + first);
    });
  };
}

// The executable does it, for every backend on the host.
Step make_all_reduce(const OpView&, Scratch&) {
  return [] {};
}

}  // namespace redline::backend::cpu
