#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>

#include "backend/reference/channels.h"
#include "backend/reference/kernels.h"

namespace redline::backend::reference {
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

// What a norm of channel c uses: the batch's statistics in training (moving the running ones towards them),
// else the running ones.
Statistics statistics_for(Arguments& args, std::span<const float> x, std::span<const float> sums,
                          const Channels& channels, std::size_t c) {
  const auto& attr = args.attr<graph::NormAttr>();
  if (!attr.training) return {args.in(3)[c], args.in(4)[c]};
  const auto running_mean = args.in_place(3), running_var = args.in_place(4);
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
  const auto x = args.in(0), gamma = args.in(1), beta = args.in(2);
  const auto y = args.out(0), saved = args.out(1);
  const Channels channels(args.input_shape(0));
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
  const auto y = args.in(0), gamma = args.in(1), beta = args.in(2);
  const auto sums = args.in(5);
  const auto affine = args.out(0), saved = args.out(1);
  const Channels channels(args.input_shape(0));
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
  const auto dy = args.in(0), x = args.in(1), gamma = args.in(2), saved = args.in(3);
  const auto dx = args.out(0), dgamma = args.out(1), dbeta = args.out(2);
  const Channels channels(args.input_shape(0));
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
