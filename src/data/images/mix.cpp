#include "data/images/mix.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"

namespace redline::data {
namespace {

constexpr std::uint64_t kMixStream = 0x6d697865;  // keeps these draws apart from those of samples
constexpr double kMostAlpha = 1000;               // beyond it every weight is a half

// The logarithm of a Gamma(shape, 1) variate (Marsaglia and Tsang, 2000): small shapes give values that only
// their logarithm can hold.
double log_gamma_variate(double shape, Random& random) {
  const double boosted = shape < 1 ? shape + 1 : shape, d = boosted - 1.0 / 3.0, c = 1 / std::sqrt(9 * d);
  for (;;) {
    const double x = random.normal(), root = 1 + c * x, u = 1 - random.uniform();
    if (root <= 0) continue;
    const double v = root * root * root;
    if (std::log(u) >= 0.5 * x * x + d * (1 - v + std::log(v))) continue;
    const double log_value = std::log(d * v);
    return shape < 1 ? log_value + std::log(1 - random.uniform()) / shape : log_value;
  }
}

double beta_variate(double alpha, Random& random) {
  const double a = log_gamma_variate(alpha, random), b = log_gamma_variate(alpha, random);
  return 1 / (1 + std::exp(b - a));
}

// weight is of 256.
void blend_into(std::uint8_t* own, const std::uint8_t* other, std::size_t bytes, int weight) {
  const auto mine = static_cast<std::uint16_t>(weight), theirs = static_cast<std::uint16_t>(256 - weight);
  for (std::size_t i = 0; i < bytes; ++i)
    own[i] =
        static_cast<std::uint8_t>(static_cast<std::uint16_t>(own[i] * mine + other[i] * theirs + 128) >> 8);
}

void paste_into(std::uint8_t* own, const std::uint8_t* other, int side, const Rect& box) {
  for (int y = box.y; y < box.y + box.height; ++y) {
    const std::ptrdiff_t at = (std::ptrdiff_t{y} * side + box.x) * 3;
    std::memcpy(own + at, other + at, static_cast<std::size_t>(box.width) * 3);
  }
}

}  // namespace

void validate(const MixOptions& o) {
  const auto check_alpha = [](const char* flag, double alpha) {
    if (!(alpha >= 0 && alpha <= kMostAlpha))
      throw UsageError("{} {} is not from 0 to {}", flag, alpha, kMostAlpha);
  };
  check_alpha("--mixup-alpha", o.mixup_alpha);
  check_alpha("--cutmix-alpha", o.cutmix_alpha);
}

Random batch_random(std::uint64_t seed, std::int64_t epoch, std::int64_t batch, int rank) {
  return Random(
      seed, mix(mix(mix(kMixStream, static_cast<std::uint64_t>(epoch)), static_cast<std::uint64_t>(batch)),
                static_cast<std::uint64_t>(rank)));
}

Mix draw_mix(const MixOptions& options, int side, Random& random) {
  check(options.any(), "a batch to mix without mixup or cutmix");
  Mix mix;
  mix.cut = options.mixup_alpha == 0 || (options.cutmix_alpha > 0 && random.below(2) == 1);
  const double weight = beta_variate(mix.cut ? options.cutmix_alpha : options.mixup_alpha, random);
  if (!mix.cut) {
    mix.weight = std::nearbyint(weight * 256) / 256;  // pixels and labels have the same
    return mix;
  }
  const auto x = static_cast<int>(random.below(static_cast<std::uint64_t>(side)));
  const auto y = static_cast<int>(random.below(static_cast<std::uint64_t>(side)));
  const int half = static_cast<int>(0.5 * std::sqrt(1 - weight) * side);
  const int left = std::max(x - half, 0), right = std::min(x + half, side);
  const int top = std::max(y - half, 0), bottom = std::min(y + half, side);
  mix.box = {left, top, right - left, bottom - top};
  mix.weight = 1 - static_cast<double>(mix.box.width) * mix.box.height / (static_cast<double>(side) * side);
  return mix;
}

void mix_batch(const Mix& mix, int rows, int side, const BatchMemory& batch,
               std::vector<std::uint8_t>& scratch) {
  const std::size_t bytes = static_cast<std::size_t>(side) * static_cast<std::size_t>(side) * 3;
  const std::int32_t* labels = batch.labels();
  if (scratch.size() < bytes) scratch.resize(bytes);
  std::memcpy(scratch.data(), batch.image(rows - 1), bytes);
  // From the last row up, so that a neighbour is still what it was.
  for (int row = rows - 1; row >= 0; --row) {
    const int neighbour = row > 0 ? row - 1 : rows - 1;
    const bool both = labels[row] >= 0 && labels[neighbour] >= 0;
    batch.other_labels()[row] = both ? labels[neighbour] : -1;
    batch.label_weights()[row] = both ? static_cast<float>(mix.weight) : 1.0F;
    if (!both) continue;
    const std::uint8_t* other = row > 0 ? batch.image(neighbour) : scratch.data();
    if (mix.cut)
      paste_into(batch.image(row), other, side, mix.box);
    else
      blend_into(batch.image(row), other, bytes, static_cast<int>(mix.weight * 256));
  }
}

}  // namespace redline::data
