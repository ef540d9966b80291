// From an encoded image to one row of a batch: crop, resize, flip and distort (distort.h) for training,
// resize and centre crop for evaluation. All random choices are functions of (seed, epoch, sample), so a run
// can be repeated with any number of threads or ranks.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "base/random.h"
#include "data/images/decode.h"
#include "data/images/distort.h"
#include "data/images/image.h"
#include "data/images/pillow_resize.h"
#include "data/images/resize.h"

namespace redline::data {

struct TransformOptions {
  bool train = true;
  int size = 224;  // height and width of the result
  Interpolation filter = Interpolation::bilinear;

  // Training: a random part of the image of this share of its area and this width/height ratio.
  double scale_min = 0.08;
  double scale_max = 1.0;
  double ratio_min = 3.0 / 4.0;
  double ratio_max = 4.0 / 3.0;
  double flip = 0.5;       // probability of a left-right mirror image
  DistortOptions distort;  // after crop and flip
  // Scale a JPEG down by 2, 4 or 8 during decoding, if the crop allows it, and keep its colour space and
  // chroma resolution until after the resize. Several times faster; on photographs it is off by half a level
  // on average, or by about one if scaled down.
  bool shortcuts = true;

  // Evaluation: the shorter side becomes size / centre, then the centre is cropped. Decoded at full size, so
  // that accuracies can be compared with other programs.
  double centre = 0.875;
};

// Throws UsageError naming the option that makes no sense.
void validate(const TransformOptions& options);

// The random generator of one sample in one epoch.
Random sample_random(std::uint64_t seed, std::int64_t epoch, std::int64_t sample);

struct Crop {
  Rect region;
  bool flip = false;
};

// torchvision's RandomResizedCrop: ten tries at a random area and ratio, then the largest centre crop whose
// ratio is allowed.
Crop random_crop(const TransformOptions& options, int width, int height, Random& random);

// The part of an image that evaluation uses: torchvision's Resize, then CenterCrop.
ResizedPart centre_part(const TransformOptions& options, int width, int height);
// The same in pixels of the stored image.
Box centre_box(const TransformOptions& options, int width, int height);

// The part of an image in a row of a batch, in pixels of the stored image.
struct View {
  Box box;
  Rect clip;  // the filter sees no pixel outside it
  bool flip = false;
};

// A random crop in training, the middle in evaluation.
View choose_view(const TransformOptions& options, int width, int height, Random& random);

// Seconds of a thread in each stage of making samples.
struct StageSeconds {
  double read = 0;    // from the record source
  double decode = 0;  // to pixels
  double resize = 0;  // and all that happens to the pixels after it

  void add(const StageSeconds& other) {
    read += other.read;
    decode += other.decode;
    resize += other.resize;
  }
};

// One per thread.
class Transform {
 public:
  Transform(const TransformOptions& options, const DecodeLimits& limits);

  // Writes [size, size, 3] to out. Throws DataError when the image cannot be decoded; out is then undefined.
  // Adds the time it took to seconds, where given.
  void run(std::span<const std::uint8_t> bytes, Random random, std::uint8_t* out,
           StageSeconds* seconds = nullptr);

  struct Screened {
    int width = 0, height = 0;
    View view;
  };
  // If the image is a JPEG that hardware decoders support, the part that run() would use; nothing is decoded.
  // Throws DataError as run() does for a bad header.
  std::optional<Screened> screen(std::span<const std::uint8_t> bytes, Random random);

 private:
  TransformOptions options_;
  Decoder decoder_;
  Resizer resizer_;
  PillowResizer exact_resizer_;
  Distorter distorter_;
};

}  // namespace redline::data
