// Antialiased image resizing: when an image shrinks, each output pixel is a weighted mean of all input pixels
// that it covers, so nothing flickers and statistics survive. The filters and their edges are Pillow's;
// results differ from its by rounding alone (it rounds to 8 bits between its two passes, this keeps 6 more).
#pragma once

#include <cstdint>
#include <vector>

#include "data/image.h"

namespace redline::data {

enum class Filter { bilinear, bicubic };

// One a thread; keeps its tables and rows from image to image.
class Resizer {
 public:
  // Resizes `box` of source to out: [out_height, out_width, 3], rows packed. The filter sees no pixel outside
  // `clip`, a part of source that must contain the box up to a pixel: pass the box's own pixels for
  // "crop, then resize", and the whole source for "resize, then crop". flip mirrors left and right.
  void resize(const Pixels& source, const Box& box, const Rect& clip, int out_width, int out_height,
              Filter filter, bool flip, std::uint8_t* out);

 private:
  // Weights of one direction: output i is the sum of weights[i * taps + k] * input[first[i] + k], in units of
  // 1 / 16384. Padded with zeros to an even number of taps.
  struct Axis {
    int taps = 0;
    std::vector<int> first;
    std::vector<std::int16_t> weights;
    std::vector<double> real;  // the weights of one output before rounding

    void plan(double start, double length, int clip_begin, int clip_end, int outputs, Filter filter);
  };

  Axis across_;
  Axis down_;
  std::vector<std::int16_t> row_;  // one output row before the horizontal pass, in units of 1 / 64
};

}  // namespace redline::data
