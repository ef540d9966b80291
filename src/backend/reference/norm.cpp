#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>

#include "backend/reference/channels.h"
#include "backend/reference/kernels.h"
#include "graph/operands.h"

namespace redline::backend::reference {

using namespace graph::operands;

namespace {

struct Statistics {
  double mean, variance;  // variance is biased: divided by n
};

// Two passes, since the mean of squares minus the square of the mean cancels.
Statistics measure(std::span<const float> x, const Channels& channels, std::size_t c) {
  double sum = 0.0;
  channels.for_each(c, [&](std::size_t i) { sum += static_cast<double>(x[i]); });
  const double mean = sum / channels.count();
  double squares = 0.0;
  channels.for_each(c, [&](std::size_t i) {
    const double d = static_cast<double>(x[i]) - mean;
    squares += d * d;
  });
  return {mean, squares / channels.count()};
}

Statistics from_sums(double sum, double squares, double count) {
  const double mean = sum / count;
  return {mean, std::max(0.0, squares / count - mean * mean)};
}

// The statistics that a norm of channel c uses: the batch's in training (and moves the running ones towards
// them), otherwise the running ones. batch_norm and norm_stats have them at the same positions.
Statistics statistics_for(Arguments& args, std::span<const float> x, std::span<const float> sums,
                          const Channels& channels, std::size_t c) {
  const auto& attr = args.attr<graph::NormAttr>();
  if (!attr.training) return {args.in(NormStats::mean)[c], args.in(NormStats::var)[c]};
  const auto running_mean = args.in_place(NormStats::mean), running_var = args.in_place(NormStats::var);
  const Statistics batch = sums.empty() ? measure(x, channels, c)
                                        : from_sums(sums[c], sums[channels.channels + c], channels.count());
  const double n = channels.count(), unbias = n > 1.0 ? n / (n - 1.0) : 1.0;
  const double momentum = static_cast<double>(attr.momentum);
  const auto move = [&](float& running, double value) {
    running = static_cast<float>((1.0 - momentum) * static_cast<double>(running) + momentum * value);
  };
  move(running_mean[c], batch.mean);
  move(running_var[c], batch.variance * unbias);
  return batch;
}

double inverse_deviation(const Statistics& s, const graph::NormAttr& attr) {
  return 1.0 / std::sqrt(s.variance + static_cast<double>(attr.epsilon));
}

void save(std::span<float> saved, std::size_t c, std::size_t channels, double mean, double invstd) {
  if (saved.empty()) return;
  saved[c] = static_cast<float>(mean);
  saved[channels + c] = static_cast<float>(invstd);
}

}  // namespace

void batch_norm(Arguments& args) {
  const auto x = args.in(BatchNorm::x), gamma = args.in(BatchNorm::gamma), beta = args.in(BatchNorm::beta);
  const auto y = args.out(BatchNorm::y), saved = args.out(BatchNorm::saved);
  const Channels channels(args.input_shape(BatchNorm::x));
  for (std::size_t c = 0; c < channels.channels; ++c) {
    const Statistics s = statistics_for(args, x, {}, channels, c);
    const double invstd = inverse_deviation(s, args.attr<graph::NormAttr>());
    save(saved, c, channels.channels, s.mean, invstd);
    const double scale = static_cast<double>(gamma[c]) * invstd;
    channels.for_each(c, [&](std::size_t i) {
      y[i] = static_cast<float>((static_cast<double>(x[i]) - s.mean) * scale + static_cast<double>(beta[c]));
    });
  }
}

void norm_stats(Arguments& args) {
  const auto y = args.in(NormStats::y), gamma = args.in(NormStats::gamma), beta = args.in(NormStats::beta);
  const auto sums = args.in(NormStats::sums);
  const auto affine = args.out(NormStats::affine), saved = args.out(NormStats::saved);
  const Channels channels(args.input_shape(NormStats::y));
  for (std::size_t c = 0; c < channels.channels; ++c) {
    const Statistics s = statistics_for(args, y, sums, channels, c);
    const double invstd = inverse_deviation(s, args.attr<graph::NormAttr>());
    save(saved, c, channels.channels, s.mean, invstd);
    const double scale = static_cast<double>(gamma[c]) * invstd;
    affine[c] = static_cast<float>(scale);
    affine[channels.channels + c] = static_cast<float>(static_cast<double>(beta[c]) - s.mean * scale);
  }
}

void batch_norm_grad(Arguments& args) {
  const auto dy = args.in(BatchNormGrad::dy), x = args.in(BatchNormGrad::x),
             gamma = args.in(BatchNormGrad::gamma), saved = args.in(BatchNormGrad::saved);
  const auto dx = args.out(BatchNormGrad::dx), dgamma = args.out(BatchNormGrad::dgamma),
             dbeta = args.out(BatchNormGrad::dbeta);
  const Channels channels(args.input_shape(BatchNormGrad::dy));
  for (std::size_t c = 0; c < channels.channels; ++c) {
    const double mean = saved[c], invstd = saved[channels.channels + c];
    double sum = 0.0, product = 0.0;
    channels.for_each(c, [&](std::size_t i) {
      sum += static_cast<double>(dy[i]);
      product += static_cast<double>(dy[i]) * (static_cast<double>(x[i]) - mean) * invstd;
    });
    if (!dgamma.empty()) dgamma[c] = static_cast<float>(product);
    if (!dbeta.empty()) dbeta[c] = static_cast<float>(sum);
    if (dx.empty()) continue;
    const double scale = static_cast<double>(gamma[c]) * invstd, n = channels.count();
    channels.for_each(c, [&](std::size_t i) {
      const double normal = (static_cast<double>(x[i]) - mean) * invstd;
      dx[i] = static_cast<float>(scale * (static_cast<double>(dy[i]) - sum / n - normal * product / n));
    });
  }
}

}  // namespace redline::backend::reference
