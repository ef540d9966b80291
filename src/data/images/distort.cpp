#include "data/images/distort.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "data/images/color_ops.h"

namespace redline::data {
namespace {

void check_share(const char* flag, double value, double most) {
  if (!(value >= 0 && value <= most)) throw UsageError("{} {} is not from 0 to {}", flag, value, most);
}

void apply_jitter(const JitterDraw& draw, const RgbImage& image) {
  for (const int property : draw.order) {
    if (property < 0) continue;
    const double amount = draw.amount[static_cast<std::size_t>(property)];
    switch (property) {
      case JitterDraw::brightness:
        adjust_brightness(image, amount);
        break;
      case JitterDraw::contrast:
        adjust_contrast(image, amount);
        break;
      case JitterDraw::saturation:
        adjust_saturation(image, amount);
        break;
      default:
        adjust_hue(image, amount);
    }
  }
}

void paint(const RgbImage& image, const Rect& rect, const std::array<std::uint8_t, 3>& color) {
  for (int y = rect.y; y < rect.y + rect.height; ++y) {
    std::uint8_t* pixel = image.data + (std::ptrdiff_t{y} * image.width + rect.x) * 3;
    for (int x = 0; x < rect.width; ++x, pixel += 3) std::copy(color.begin(), color.end(), pixel);
  }
}

}  // namespace

void validate(const DistortOptions& o) {
  if (o.magnitude < 0 || o.magnitude >= kMagnitudes)
    throw UsageError("--ra-magnitude {} is not from 0 to {}", o.magnitude, kMagnitudes - 1);
  if (o.operations < 0 || o.operations > 100)
    throw UsageError("--ra-num-ops {} is not from 0 to 100", o.operations);
  for (const double strength : {o.jitter.brightness, o.jitter.contrast, o.jitter.saturation})
    check_share("--color-jitter", strength, 100);
  check_share("the hue of --color-jitter", o.jitter.hue, 0.5);
  check_share("--random-erase", o.erase.probability, 1);
  if (!(o.erase.scale_min > 0 && o.erase.scale_min <= o.erase.scale_max && o.erase.scale_max <= 1))
    throw UsageError("--random-erase-scale from {} to {}; it needs 0 < low <= high <= 1", o.erase.scale_min,
                     o.erase.scale_max);
  if (!(o.erase.ratio_min > 0 && o.erase.ratio_min <= o.erase.ratio_max && std::isfinite(o.erase.ratio_max)))
    throw UsageError("--random-erase-ratio from {} to {}; it needs 0 < low <= high", o.erase.ratio_min,
                     o.erase.ratio_max);
}

bool DistortOptions::any() const {
  return policy != AutoAugment::none || jitter.brightness > 0 || jitter.contrast > 0 ||
         jitter.saturation > 0 || jitter.hue > 0 || erase.probability > 0;
}

JitterDraw draw_jitter(const ColorJitter& options, Random& random) {
  JitterDraw draw;
  const std::array<double, JitterDraw::kProperties> strength = {options.brightness, options.contrast,
                                                                options.saturation, options.hue};
  for (int property = 0; property < JitterDraw::kProperties; ++property) {
    const auto i = static_cast<std::size_t>(property);
    if (strength[i] == 0) continue;
    draw.order[i] = property;
    const double centre = property == JitterDraw::hue ? 0 : 1;
    const double least = property == JitterDraw::hue ? -strength[i] : std::max(0.0, 1 - strength[i]);
    draw.amount[i] = random.uniform(least, centre + strength[i]);
  }
  random.shuffle(draw.order);
  return draw;
}

Rect draw_erasing(const RandomErasing& o, int width, int height, Random& random) {
  if (o.probability == 0 || random.uniform() >= o.probability) return {};
  const double area = static_cast<double>(width) * height;
  const double log_low = std::log(o.ratio_min), log_high = std::log(o.ratio_max);
  for (int attempt = 0; attempt < 10; ++attempt) {
    const double target = area * random.uniform(o.scale_min, o.scale_max);
    const double ratio = std::exp(random.uniform(log_low, log_high));
    const double h = std::nearbyint(std::sqrt(target * ratio)), w = std::nearbyint(std::sqrt(target / ratio));
    if (!(h < height && w < width)) continue;
    return {static_cast<int>(random.below(static_cast<std::uint64_t>(width - w) + 1)),
            static_cast<int>(random.below(static_cast<std::uint64_t>(height - h) + 1)), static_cast<int>(w),
            static_cast<int>(h)};
  }
  return {};
}

void Distorter::run(const RgbImage& image, Random& random) {
  if (options_.policy != AutoAugment::none) {
    const int count = options_.policy == AutoAugment::rand_augment ? options_.operations : 1;
    for (int i = 0; i < count; ++i)
      apply(draw_step(options_.policy, options_.magnitude, image.width, random), image, scratch_);
  }
  apply_jitter(draw_jitter(options_.jitter, random), image);
  paint(image, draw_erasing(options_.erase, image.width, image.height, random), options_.erase.color);
}

}  // namespace redline::data
