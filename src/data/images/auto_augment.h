// RandAugment (Cubuk et al., 2020) and TrivialAugment Wide (Müller and Hutter, 2021): each image gets a few
// of fourteen operations at random. The operations, their ranges and their 31 magnitudes are torchvision's.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/random.h"
#include "data/images/image.h"

namespace redline::data {

enum class AutoAugment {
  none,
  rand_augment,          // `operations` of them, all with `magnitude`
  trivial_augment_wide,  // one, with a magnitude drawn for it, over wider ranges
};

inline constexpr int kMagnitudes = 31;

enum class ImageOp {
  identity,
  shear_x,  // slope
  shear_y,
  translate_x,  // pixels, rounded towards zero
  translate_y,
  rotate,      // degrees, counter-clockwise
  brightness,  // what is added to a factor of one, as for the next three
  color,
  contrast,
  sharpness,
  posterize,  // bits that stay
  solarize,   // threshold
  autocontrast,
  equalize,
};

// What to do to one image.
struct ImageStep {
  ImageOp op = ImageOp::identity;
  double amount = 0;  // in the op's unit; those without one ignore it
};

// The amount that a magnitude (0 to 30) stands for, before a sign is drawn for the ops that have one.
// side is the image's height and width.
double amount_of(AutoAugment policy, ImageOp op, int magnitude, int side);

// The next operation for an image. magnitude counts for RandAugment alone.
ImageStep draw_step(AutoAugment policy, int magnitude, int side, Random& random);

// Memory that operations use; grows to the size that an image needs once.
struct AugmentScratch {
  std::vector<std::uint64_t> pixels;
  std::vector<std::uint8_t> rows;
};

// Any thread, each with its own scratch.
void apply(const ImageStep& step, const RgbImage& image, AugmentScratch& scratch);

}  // namespace redline::data
