// Flat loops over parameters; see kernels.h. Included by kernels.cpp.
#pragma once

#include "backend/cpu/kernels/kernels.h"

namespace redline::backend::cpu {
namespace {

void sgd(int64_t count, const SgdStep& step, float* __restrict w, const float* __restrict g,
         float* __restrict v) {
  const float rate = step.learning_rate, scale = step.gradient_scale, momentum = step.momentum;
  const float decay = step.weight_decay;
  if (step.nesterov) {
    for (int64_t i = 0; i < count; ++i) {
      const float gradient = g[i] * scale + decay * w[i];
      v[i] = momentum * v[i] + gradient;
      w[i] -= rate * (gradient + momentum * v[i]);
    }
  } else {
    for (int64_t i = 0; i < count; ++i) {
      v[i] = momentum * v[i] + (g[i] * scale + decay * w[i]);
      w[i] -= rate * v[i];
    }
  }
}

void lars(int64_t count, float rate, const SgdStep& step, float* __restrict w, const float* __restrict g,
          float* __restrict v) {
  const float scale = step.gradient_scale, momentum = step.momentum, decay = step.weight_decay;
  for (int64_t i = 0; i < count; ++i) {
    v[i] = momentum * v[i] + rate * (g[i] * scale + decay * w[i]);
    w[i] -= v[i];
  }
}

inline void move_moments(const AdamStep& step, float gradient, float& m, float& v) {
  const float g = gradient * step.gradient_scale;
  m = step.beta1 * m + (1.0F - step.beta1) * g;
  v = step.beta2 * v + (1.0F - step.beta2) * g * g;
}

inline float direction(const AdamStep& step, float m, float v) {
  return m * step.scale1 / (__builtin_sqrtf(v) * step.scale2 + step.epsilon);
}

void adamw(int64_t count, const AdamStep& step_, float keep, float rate, float* __restrict w,
           const float* __restrict g, float* __restrict m, float* __restrict v) {
  const AdamStep step = step_;
  for (int64_t i = 0; i < count; ++i) {
    move_moments(step, g[i], m[i], v[i]);
    w[i] = keep * w[i] - rate * direction(step, m[i], v[i]);
  }
}

double lamb_moments(int64_t count, const AdamStep& step_, float decay, const float* __restrict w,
                    const float* __restrict g, float* __restrict m, float* __restrict v) {
  const AdamStep step = step_;
  constexpr int64_t kParts = 16;
  double sums[kParts] = {};
  const auto squared = [&](int64_t i) {
    move_moments(step, g[i], m[i], v[i]);
    const auto moved = static_cast<double>(direction(step, m[i], v[i]) + decay * w[i]);
    return moved * moved;
  };
  int64_t i = 0;
  for (; i + kParts <= count; i += kParts) {
    for (int64_t j = 0; j < kParts; ++j) sums[j] += squared(i + j);
  }
  for (; i < count; ++i) sums[0] += squared(i);
  double total = 0.0;
  for (double sum : sums) total += sum;
  return total;
}

void lamb(int64_t count, const AdamStep& step_, float decay, float rate, float* __restrict w,
          const float* __restrict m, const float* __restrict v) {
  const AdamStep step = step_;
  for (int64_t i = 0; i < count; ++i) w[i] -= rate * (direction(step, m[i], v[i]) + decay * w[i]);
}

void ema(int64_t count, float decay, float* __restrict average, const float* __restrict value) {
  const float rest = 1.0F - decay;
  for (int64_t i = 0; i < count; ++i) average[i] = decay * average[i] + rest * value[i];
}

void accumulate(int64_t count, float keep, float* __restrict total, const float* __restrict g) {
  if (keep == 0.0F) {
    for (int64_t i = 0; i < count; ++i) total[i] = g[i];
  } else {
    for (int64_t i = 0; i < count; ++i) total[i] = keep * total[i] + g[i];
  }
}

double sum_of_squares(int64_t count, const float* x) {
  constexpr int64_t kParts = 16;
  double sums[kParts] = {};
  int64_t i = 0;
  for (; i + kParts <= count; i += kParts) {
    for (int64_t j = 0; j < kParts; ++j)
      sums[j] += static_cast<double>(x[i + j]) * static_cast<double>(x[i + j]);
  }
  for (; i < count; ++i) sums[0] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  double total = 0.0;
  for (double sum : sums) total += sum;
  return total;
}

constexpr UpdateKernels update_table() {
  return {sgd, lars, adamw, lamb_moments, lamb, ema, accumulate, sum_of_squares};
}

}  // namespace
}  // namespace redline::backend::cpu
