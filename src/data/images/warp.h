// Shears, shifts and rotations of one image: an affine map gives the source of each output pixel,
// interpolated between four input pixels (bilinear, as Pillow's transform). Outside the image is black.
#pragma once

#include <cstdint>
#include <vector>

#include "data/images/image.h"

namespace redline::data {

// Maps the output's point (x, y) to the input: (xx x + xy y + x0, yx x + yy y + y0), in pixels from the upper
// left corner, so that the centre of the first pixel is at (0.5, 0.5).
struct Affine {
  double xx = 1, xy = 0, x0 = 0;
  double yx = 0, yy = 1, y0 = 0;
};

Affine shear_x(double slope);
Affine shear_y(double slope);
Affine translation(int right, int down);
// Counter-clockwise around the middle of the image.
Affine rotation(double degrees, int width, int height);

// In place. scratch grows to eight bytes a pixel once.
void warp(const RgbImage& image, const Affine& map, std::vector<std::uint64_t>& scratch);

}  // namespace redline::data
