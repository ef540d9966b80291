// Shears, shifts and turns of one image: each output pixel is looked up where an affine map says that it
// comes from, between four input pixels (bilinear, as Pillow's transform). What comes from outside is black.
#pragma once

#include <cstdint>
#include <vector>

#include "data/image.h"

namespace redline::data {

// Where the output's point (x, y) lies in the input: (xx x + xy y + x0, yx x + yy y + y0), in pixels from the
// upper left corner, so that the centre of the first pixel is at (0.5, 0.5).
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
