// Optional augmentation of a training image after the crop: RandAugment or TrivialAugment, colour jitter, and
// random erasing, in this order. All of it works on the bytes of the resized image, in place.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/random.h"
#include "data/images/auto_augment.h"
#include "data/images/image.h"

namespace redline::data {

// torchvision's ColorJitter: a factor is drawn from 1 - x to 1 + x (not below 0), a hue from -x to x of the
// colour circle; 0 leaves that property alone.
struct ColorJitter {
  double brightness = 0, contrast = 0, saturation = 0, hue = 0;
};

// torchvision's RandomErasing: with this probability, a rectangle of this share of the area and this
// height/width ratio is painted over.
struct RandomErasing {
  double probability = 0;
  double scale_min = 0.02, scale_max = 0.33;
  double ratio_min = 0.3, ratio_max = 3.3;
  // ImageNet's mean colour, which normalisation turns into (nearly) zero.
  std::array<std::uint8_t, 3> color = {124, 116, 104};
};

struct DistortOptions {
  AutoAugment policy = AutoAugment::none;
  int magnitude = 9;   // of RandAugment, 0 to 30
  int operations = 2;  // of RandAugment
  ColorJitter jitter;
  RandomErasing erase;

  bool any() const;  // whether anything is done at all
};

// Throws UsageError naming the option that makes no sense.
void validate(const DistortOptions& options);

// The steps of colour jitter for one image, in order. Unused entries of the order are -1.
struct JitterDraw {
  enum Property : int { brightness, contrast, saturation, hue, kProperties };
  std::array<int, kProperties> order = {-1, -1, -1, -1};
  std::array<double, kProperties> amount = {};  // by property
};
JitterDraw draw_jitter(const ColorJitter& options, Random& random);

// The rectangle to erase; without area when there is none.
Rect draw_erasing(const RandomErasing& options, int width, int height, Random& random);

// One per thread; keeps its scratch from image to image.
class Distorter {
 public:
  explicit Distorter(const DistortOptions& options) : options_(options) {}

  void run(const RgbImage& image, Random& random);

 private:
  DistortOptions options_;
  AugmentScratch scratch_;
};

}  // namespace redline::data
