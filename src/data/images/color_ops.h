// The colour operations of augmentation, on one image in place. Results are the same as Pillow's
// (ImageEnhance, ImageOps and the HSV conversion, as torchvision uses them on images), so recipes carry over.
//
// An operation on single bytes is a table of 256 entries. Nothing is allocated, except two rows, once, in the
// caller's scratch by adjust_sharpness. Any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "data/images/image.h"

namespace redline::data {

// Factors: 1 leaves the image as it is, 0 goes all the way to black, to flat grey, to greyscale, to blurred;
// above 1 goes the other way. Not negative.
void adjust_brightness(const RgbImage& image, double factor);
void adjust_contrast(const RgbImage& image, double factor);
void adjust_saturation(const RgbImage& image, double factor);
void adjust_sharpness(const RgbImage& image, double factor, std::vector<std::uint8_t>& scratch);

// Shifts every hue by this fraction of the colour circle, from -0.5 to 0.5.
void adjust_hue(const RgbImage& image, double turn);

// Keeps the upper `bits` of every byte, 1 to 8.
void posterize(const RgbImage& image, int bits);
// Inverts what is not below the threshold.
void solarize(const RgbImage& image, double threshold);
// Stretches every channel to the whole range.
void autocontrast(const RgbImage& image);
// Makes every channel's histogram as flat as it can be.
void equalize(const RgbImage& image);

}  // namespace redline::data
