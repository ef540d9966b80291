// Resizing exactly as Pillow does it, for evaluation, so that images have the same pixels as in other
// programs. Horizontally first, rounded to bytes, then vertically, with weights of 22 bits.
#pragma once

#include <cstdint>
#include <vector>

#include "base/interpolation.h"
#include "data/images/image.h"

namespace redline::data {

// A part of an image that was resized: torchvision's Resize and CenterCrop.
struct ResizedPart {
  int width = 0, height = 0;  // of the resized image
  Rect part;                  // of it
};

// One per thread; keeps its tables and rows from image to image.
class PillowResizer {
 public:
  // source: of an image of width x height, at least the pixels that the part is made of. Writes the part to
  // out: [part.height, part.width, 3], rows packed.
  void resize(const Pixels& source, int width, int height, const ResizedPart& wanted, Interpolation filter,
              std::uint8_t* out);

 private:
  // Output i is the sum of weights[i * taps + k] * input[first[i] + k], in units of 1 / 2^22, padded with
  // zeros. Inputs count from the first that source has.
  struct Axis {
    int taps = 0;
    std::vector<int> first;
    std::vector<double> exact;
    std::vector<std::int32_t> weights;

    void plan(int inputs, int outputs, int begin, int count, int origin, Interpolation filter);
    // As exact_pixels takes them. taps becomes even.
    void split(std::vector<std::int16_t>& halves);
  };

  Axis across_, down_;
  std::vector<std::int16_t> halves_;  // of the weights across, as the kernel takes them
  std::vector<std::uint8_t> rows_;    // resized across
  std::vector<std::uint8_t> padded_;  // a row of source, with room to read past its end
};

}  // namespace redline::data
