#include "data/images/auto_augment.h"

#include <cmath>

#include "base/error.h"
#include "data/images/color_ops.h"
#include "data/images/warp.h"

namespace redline::data {
namespace {

constexpr int kImageOps = static_cast<int>(ImageOp::equalize) + 1;

// Half of the time such an amount is negated.
bool has_sign(ImageOp op) { return op >= ImageOp::shear_x && op <= ImageOp::sharpness; }

}  // namespace

double amount_of(AutoAugment policy, ImageOp op, int magnitude, int side) {
  const bool wide = policy == AutoAugment::trivial_augment_wide;
  const double share = static_cast<double>(magnitude) / (kMagnitudes - 1);
  switch (op) {
    case ImageOp::shear_x:
    case ImageOp::shear_y:
      return (wide ? 0.99 : 0.3) * share;
    case ImageOp::translate_x:
    case ImageOp::translate_y:
      return std::trunc((wide ? 32.0 : 150.0 / 331.0 * side) * share);
    case ImageOp::rotate:
      return (wide ? 135.0 : 30.0) * share;
    case ImageOp::brightness:
    case ImageOp::color:
    case ImageOp::contrast:
    case ImageOp::sharpness:
      return (wide ? 0.99 : 0.9) * share;
    case ImageOp::posterize:
      return 8.0 - std::nearbyint((wide ? 6.0 : 4.0) * share);
    case ImageOp::solarize:
      return 255.0 * (1.0 - share);
    case ImageOp::identity:
    case ImageOp::autocontrast:
    case ImageOp::equalize:
      return 0;
  }
  throw InternalError("unknown image op {}", static_cast<int>(op));
}

ImageStep draw_step(AutoAugment policy, int magnitude, int side, Random& random) {
  ImageStep step;
  step.op = static_cast<ImageOp>(random.below(kImageOps));
  if (policy == AutoAugment::trivial_augment_wide) magnitude = static_cast<int>(random.below(kMagnitudes));
  step.amount = amount_of(policy, step.op, magnitude, side);
  if (has_sign(step.op) && random.below(2) == 1) step.amount = -step.amount;
  return step;
}

void apply(const ImageStep& step, const RgbImage& image, AugmentScratch& scratch) {
  switch (step.op) {
    case ImageOp::identity:
      return;
    case ImageOp::shear_x:
      return warp(image, shear_x(step.amount), scratch.pixels);
    case ImageOp::shear_y:
      return warp(image, shear_y(step.amount), scratch.pixels);
    case ImageOp::translate_x:
      return warp(image, translation(static_cast<int>(step.amount), 0), scratch.pixels);
    case ImageOp::translate_y:
      return warp(image, translation(0, static_cast<int>(step.amount)), scratch.pixels);
    case ImageOp::rotate:
      return warp(image, rotation(step.amount, image.width, image.height), scratch.pixels);
    case ImageOp::brightness:
      return adjust_brightness(image, 1.0 + step.amount);
    case ImageOp::color:
      return adjust_saturation(image, 1.0 + step.amount);
    case ImageOp::contrast:
      return adjust_contrast(image, 1.0 + step.amount);
    case ImageOp::sharpness:
      return adjust_sharpness(image, 1.0 + step.amount, scratch.rows);
    case ImageOp::posterize:
      return posterize(image, static_cast<int>(step.amount));
    case ImageOp::solarize:
      return solarize(image, step.amount);
    case ImageOp::autocontrast:
      return autocontrast(image);
    case ImageOp::equalize:
      return equalize(image);
  }
}

}  // namespace redline::data
