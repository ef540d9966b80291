// The ops around a pending affine: a raw convolution output y whose batch norm and ReLU are kept as a scale
// and a bias per channel until somebody applies them.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "backend/reference/channels.h"
#include "backend/reference/kernels.h"

namespace redline::backend::reference {
namespace {

// affine is [2,C]: scales, then biases. Absent, the value passes as it is.
float apply(std::span<const float> affine, std::size_t c, float value) {
  if (affine.empty()) return value;
  return affine[c] * value + affine[affine.size() / 2 + c];
}

bool bit(std::span<const std::uint8_t> mask, std::size_t i) { return (mask[i / 8] >> (i % 8) & 1U) != 0; }

// Whether the activation let element i of channel c through: by its mask, else by the sign of the affine,
// else yes.
struct Gate {
  std::span<const float> y, affine;
  std::span<const std::uint8_t> mask;

  bool open(std::size_t c, std::size_t i) const {
    if (!mask.empty()) return bit(mask, i);
    return affine.empty() || apply(affine, c, y[i]) > 0.0F;
  }
};

}  // namespace

void affine_act(Arguments& args) {
  const auto y = args.in(0), affine = args.in(1), shortcut = args.in(2), shortcut_affine = args.in(3);
  const auto z = args.out(0);
  const auto mask = args.out_bytes(1);
  const bool relu = args.attr<graph::ActAttr>().relu;
  const Channels channels(args.input_shape(0));
  std::fill(mask.begin(), mask.end(), std::uint8_t{0});
  for (std::size_t c = 0; c < channels.channels; ++c) {
    channels.for_each(c, [&](std::size_t i) {
      float value = apply(affine, c, y[i]);
      if (!shortcut.empty()) value += apply(shortcut_affine, c, shortcut[i]);
      if (relu && value < 0.0F) value = 0.0F;
      z[i] = value;
      if (!mask.empty() && args.as_stored(0, value) > 0.0F) {
        mask[i / 8] = static_cast<std::uint8_t>(mask[i / 8] | 1U << (i % 8));
      }
    });
  }
}

void norm_grad_stats(Arguments& args) {
  const auto g = args.in(0), g2 = args.in(1), y = args.in(2), affine = args.in(3), saved = args.in(5);
  const Gate gate{y, affine, args.in_bytes(4)};
  const auto dgamma = args.out(0), dbeta = args.out(1), masked = args.out(2);
  const Channels channels(args.input_shape(0));
  for (std::size_t c = 0; c < channels.channels; ++c) {
    const double mean = saved[c], invstd = saved[channels.channels + c];
    double sum = 0.0, product = 0.0;
    channels.for_each(c, [&](std::size_t i) {
      const float whole = g2.empty() ? g[i] : g[i] + g2[i];
      const float gm = gate.open(c, i) ? whole : 0.0F;
      sum += static_cast<double>(gm);
      product += static_cast<double>(gm) * (static_cast<double>(y[i]) - mean) * invstd;
      if (!masked.empty()) masked[i] = gm;
    });
    dgamma[c] = static_cast<float>(product);
    dbeta[c] = static_cast<float>(sum);
  }
}

void norm_grad_apply(Arguments& args) {
  const auto g = args.in(0), y = args.in(1), affine = args.in(2), saved = args.in(4), gamma = args.in(5);
  const auto dgamma = args.in(6), dbeta = args.in(7);
  const Gate gate{y, affine, args.in_bytes(3)};
  const auto dy = args.out(0);
  const Channels channels(args.input_shape(0));
  for (std::size_t c = 0; c < channels.channels; ++c) {
    const double mean = saved[c], invstd = saved[channels.channels + c], n = channels.count();
    const double scale = static_cast<double>(gamma[c]) * invstd;
    channels.for_each(c, [&](std::size_t i) {
      const double gm = gate.open(c, i) ? static_cast<double>(g[i]) : 0.0;
      const double normal = (static_cast<double>(y[i]) - mean) * invstd;
      dy[i] = static_cast<float>(
          scale * (gm - static_cast<double>(dbeta[c]) / n - normal * static_cast<double>(dgamma[c]) / n));
    });
  }
}

}  // namespace redline::backend::reference
