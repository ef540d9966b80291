// Antialiased image resizing: when an image is scaled down, each output pixel is a weighted mean of all input
// pixels that it covers, which avoids aliasing and preserves statistics. The filters and their edges are
// Pillow's; results differ only by rounding (Pillow rounds to 8 bits between its two passes, this keeps 6
// more).
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/interpolation.h"
#include "data/images/image.h"

namespace redline::data {

// The whole pixels that a box touches, within an image of this size.
Rect pixels_of(const Box& box, int width, int height);

// One per thread; keeps its tables and rows from image to image.
class Resizer {
 public:
  // Resizes `box` of source to out: [out_height, out_width, 3], rows packed. The filter sees no pixel outside
  // `clip`, a part of source that must contain the box up to a pixel: pass the box's own pixels for
  // "crop, then resize", and the whole source for "resize, then crop". flip mirrors left and right.
  void resize(const Pixels& source, const Box& box, const Rect& clip, int out_width, int out_height,
              Interpolation filter, bool flip, std::uint8_t* out);

  // The same from planes, "crop, then resize", with box in pixels of the stored image. Each plane is resized
  // from its own resolution, and colours are converted last.
  void resize(const Planes& source, const Box& box, int out_width, int out_height, Interpolation filter,
              bool flip, std::uint8_t* out);

 private:
  // Weights of one direction: output i is the sum of weights[i * taps + k] * input[first[i] + k], in units of
  // 1 / 16384. Padded with zeros.
  struct Axis {
    int taps = 0;
    std::vector<int> first;
    std::vector<std::int16_t> weights;
    std::vector<double> scratch;

    // taps becomes a multiple of `multiple`, and where that is 4 and not enough, of 8.
    void plan(double start, double length, int clip_begin, int clip_end, int outputs, Interpolation filter,
              int multiple);
    void reverse();  // the last output first
    // Counts inputs from the first that is used; gives that one.
    int start_at_zero();
    void pad(int outputs);  // with outputs that are never looked at
  };

  struct PlaneWork {
    Axis across, down;
    int left = 0, values = 0;  // columns that are used: the first, and how many
  };

  Axis across_;
  Axis down_;
  std::vector<std::int16_t> row_;    // one output row before the horizontal pass, in units of 1 / 64
  std::array<PlaneWork, 2> planes_;  // of brightness and of colour
  std::array<std::vector<std::int16_t>, 3> lines_;  // one output row of each plane
};

}  // namespace redline::data
