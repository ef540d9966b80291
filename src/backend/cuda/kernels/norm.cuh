// A batch norm's scale and bias per channel from its sums, for kernels that apply a norm as they read.
#pragma once

#include "backend/cuda/kernels/kernels.h"

namespace redline::backend::cuda {

// A channel's norm, ready to be applied.
struct ChannelNorm {
  float mean, var, inverse, scale, bias;
};

REDLINE_DEVICE ChannelNorm norm_of(const NormFinalize& args, int c) {
  ChannelNorm norm{};
  if (args.training) {
    // In double: the difference of two large numbers.
    const double mean = args.sums[c] * args.inverse_count;
    const double var = args.sums[args.channels + c] * args.inverse_count - mean * mean;
    norm.mean = static_cast<float>(mean);
    if (args.rough != nullptr) {
      norm.mean += args.rough[c] * (1.0F / static_cast<float>(1.0 / args.inverse_count));
    }
    norm.var = static_cast<float>(fmax(0.0, var));
  } else {
    norm.mean = args.mean[c];
    norm.var = args.var[c];
  }
  norm.inverse = 1.0F / sqrtf(norm.var + args.epsilon);
  norm.scale = args.gamma[c] * norm.inverse;
  norm.bias = fmaf(-norm.mean, norm.scale, args.beta[c]);
  return norm;
}

// Stores what later ops read, and updates the running statistics.
REDLINE_DEVICE void keep(const NormFinalize& args, int c, const ChannelNorm& norm) {
  args.affine[c] = norm.scale;
  args.affine[args.channels + c] = norm.bias;
  if (args.saved != nullptr) {
    args.saved[c] = norm.mean;
    args.saved[args.channels + c] = norm.inverse;
  }
  if (!args.training) return;
  args.mean[c] += args.momentum * (norm.mean - args.mean[c]);
  args.var[c] += args.momentum * (norm.var * args.unbiased - args.var[c]);
}

}  // namespace redline::backend::cuda
