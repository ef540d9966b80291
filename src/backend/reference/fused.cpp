// The ops around a pending affine: a raw convolution output y whose batch norm and ReLU are kept as a scale
// and a bias per channel until an op applies them.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "backend/reference/channels.h"
#include "backend/reference/kernels.h"
#include "graph/operands.h"

namespace redline::backend::reference {

using namespace graph::operands;

namespace {

// affine is [2,C]: scales, then biases. Without it, the value is unchanged.
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
  const auto y = args.in(AffineAct::y), affine = args.in(AffineAct::affine),
             shortcut = args.in(AffineAct::shortcut), shortcut_affine = args.in(AffineAct::shortcut_affine);
  const auto z = args.out(AffineAct::z);
  const auto mask = args.out_bytes(AffineAct::mask);
  const bool relu = args.attr<graph::ActAttr>().relu;
  const Channels channels(args.input_shape(AffineAct::y));
  std::fill(mask.begin(), mask.end(), std::uint8_t{0});
  for (std::size_t c = 0; c < channels.channels; ++c) {
    channels.for_each(c, [&](std::size_t i) {
      float value = apply(affine, c, y[i]);
      if (!shortcut.empty()) value += apply(shortcut_affine, c, shortcut[i]);
      if (relu && value < 0.0F) value = 0.0F;
      z[i] = value;
      if (!mask.empty() && args.as_stored(AffineAct::z, value) > 0.0F) {
        mask[i / 8] = static_cast<std::uint8_t>(mask[i / 8] | 1U << (i % 8));
      }
    });
  }
}

void norm_grad_stats(Arguments& args) {
  const auto g = args.in(NormGradStats::g), g2 = args.in(NormGradStats::g2), y = args.in(NormGradStats::y),
             affine = args.in(NormGradStats::affine), saved = args.in(NormGradStats::saved);
  const Gate gate{y, affine, args.in_bytes(NormGradStats::mask)};
  const auto dgamma = args.out(NormGradStats::dgamma), dbeta = args.out(NormGradStats::dbeta),
             masked = args.out(NormGradStats::masked);
  const Channels channels(args.input_shape(NormGradStats::g));
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
  const auto g = args.in(NormGradApply::g), y = args.in(NormGradApply::y),
             affine = args.in(NormGradApply::affine), saved = args.in(NormGradApply::saved),
             gamma = args.in(NormGradApply::gamma);
  const auto dgamma = args.in(NormGradApply::dgamma), dbeta = args.in(NormGradApply::dbeta);
  const Gate gate{y, affine, args.in_bytes(NormGradApply::mask)};
  const auto dy = args.out(NormGradApply::dy);
  const Channels channels(args.input_shape(NormGradApply::g));
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
