// The loops that decoding and resizing spend their time in, built once for each instruction set (namespaces
// v2 and v3, for x86-64-v2 and -v3) and chosen at run time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/interpolation.h"
#include "data/images/image.h"

namespace redline::data {

// Bits of a JPEG's compressed data that are looked up at once.
constexpr int kJpegLookup = 10;
constexpr std::uint32_t kJpegEndRun = 128;  // the "run" of an end of block: past every place
constexpr std::uint32_t kJpegNone = 255;    // a place past every block

// Huffman codes of one table. A code is followed by the bits of a value; lengths here are those of both.
struct JpegCodes {
  std::array<std::uint8_t, 16> counts{};  // by length, as stored
  std::vector<std::uint8_t> symbols;
  std::array<std::uint32_t, 17> limit{};  // of the 16 next bits: a code of this length is below it
  std::array<std::int32_t, 17> offset{};  // from a code of this length to its symbol
  // By the next bits, what jpeg_entry() makes of the symbol; 0 where its code is longer.
  std::array<std::uint32_t, 1 << kJpegLookup> lookup{};
  // Of AC codes, as many at a time as have their codes among those bits; the value of the last may reach
  // beyond. Decoding spends most of its time in a chain of lookups, each of which waits for the length that
  // the one before it found. Places count from the current one. No entry may be used where its last place is
  // past the block: an earlier one may have been the block's end.
  // To keep, one or two: length | place of the first << 8 | its value << 16 | place of the last << 32 |
  // advance << 40 | mask of the last << 48. If there is one, it is the last.
  std::array<std::uint64_t, 1 << kJpegLookup> pairs{};
  // To pass over: length | place of the last << 8 | advance << 16.
  std::array<std::uint32_t, 1 << kJpegLookup> skips{};
};

// Length | run << 8 | mask << 16, for a code of this many bits.
inline std::uint32_t jpeg_entry(int symbol, bool ac, int code_bits) {
  const int size = ac ? symbol & 15 : symbol;
  const std::uint32_t run = !ac ? 0 : symbol == 0 ? kJpegEndRun : static_cast<std::uint32_t>(symbol) >> 4;
  return static_cast<std::uint32_t>(code_bits + size) | run << 8 | ((1U << size) - 1) << 16;
}

// The value that the bits stand for: the upper half of their range is positive, the lower half negative.
// mask: as many ones as there are bits; the value of none is 0.
inline int jpeg_value(int bits, int mask) { return bits - (2 * bits <= mask ? mask : 0); }

// From the order in which coefficients are stored to the place in the block, row by row; runs that leave the
// block lead to [64].
extern const std::array<std::uint8_t, 64 + kJpegEndRun + 16> kJpegPlaces;

// The compressed data of a baseline JPEG and what it takes to decode it.
struct JpegScan {
  struct Component {
    int h = 1, v = 1;  // blocks in an MCU
    int shrink = 1;    // 1, 2, 4 or 8
    const JpegCodes *dc = nullptr, *ac = nullptr;
    const std::int16_t* steps = nullptr;  // quantisation [64], row by row
    std::uint8_t* pixels = nullptr;       // of the region's MCUs
    std::ptrdiff_t stride = 0;
  };

  std::array<Component, 3> components;
  int count = 0;    // of components
  int across = 0;   // MCUs in a row of the image
  int restart = 0;  // MCUs between restarts; 0: none
  Rect region;      // in MCUs
  // Without stuffing; kJpegSlack bytes can be read after it.
  const std::uint8_t* data = nullptr;
  const std::vector<std::size_t>* intervals =
      nullptr;  // where each restart interval begins, and the last ends
};

// Bytes that reading a block may run past the end of the data before it is noticed: 64 values of 26 bits
// each, and a word.
constexpr std::size_t kJpegSlack = 64 * 4 + 16;

// Resizing works on rows of 16-bit values, in units of 1 / 64 level (255 · 64 and bicubic's overshoot fit),
// with weights in units of 1 / 16384 (at an edge bicubic weights exceed one, so a bit is left above it).
constexpr int kRowBits = 6;
constexpr int kWeightBits = 14;
constexpr int kExactBits = 22;   // of weights, where results are to be Pillow's
constexpr int kRowPadding = 16;  // values that a kernel may read or write past the end of a row

// A resize in one direction, whose weights are to be computed.
struct AxisPlan {
  double start = 0, length = 0;      // of the inputs that the outputs are made of
  int clip_begin = 0, clip_end = 0;  // inputs that may be used
  int outputs = 0;
  int taps = 0;  // at least as many as the filter has
  Interpolation filter = Interpolation::bilinear;
};
constexpr int kPlanLanes = 8;  // outputs that are planned at once

struct Kernels {
  // For output i the inputs first[i] + k, k < taps, and their weights[i · taps + k], which add up to one.
  // scratch: taps · kPlanLanes.
  void (*plan_axis)(const AxisPlan& plan, double* scratch, int* first, std::int16_t* weights);
  // out[i] = the sum over k of weights[k] · source[k · stride + i], i < count: rows of bytes to one of
  // values.
  void (*blend_rows)(const std::uint8_t* source, std::ptrdiff_t stride, const std::int16_t* weights, int taps,
                     int count, std::int16_t* out);
  // Pixel i = the sum over k of weights[i · taps + k] · pixel first[i] + k, for values of three colours side
  // by side; taps is even. Rounded to bytes.
  void (*blend_pixels)(const std::int16_t* row, const int* first, const std::int16_t* weights, int taps,
                       int outputs, std::uint8_t* out);
  // The same for single values, to values. taps is 4 or a multiple of 8, outputs a multiple of 4.
  void (*blend_values)(const std::int16_t* row, const int* first, const std::int16_t* weights, int taps,
                       int outputs, std::int16_t* out);
  // Brightness and colour differences to RGB bytes; cb and cr are null for grey.
  void (*merge_colours)(const std::int16_t* y, const std::int16_t* cb, const std::int16_t* cr, int count,
                        std::uint8_t* out);
  // blend_pixels and blend_rows from bytes to bytes, with weights in units of 1 / 2^22, as Pillow computes.
  // halves: for two outputs and two taps at a time, the upper 11 bits of the first output's two weights, four
  // times, those of the second's, then the lower bits of both in the same way; taps is even.
  void (*exact_pixels)(const std::uint8_t* row, const int* first, const std::int16_t* halves, int taps,
                       int outputs, std::uint8_t* out);
  void (*exact_rows)(const std::uint8_t* source, std::ptrdiff_t stride, const std::int32_t* weights, int taps,
                     int count, std::uint8_t* out);
  // Decodes the region's MCUs to pixels; false when the data is damaged before their end.
  bool (*decode_scan)(const JpegScan& scan);
};

namespace v2 {
extern const Kernels kKernels;
}
namespace v3 {
extern const Kernels kKernels;
}

// The best that this machine can run.
const Kernels& kernels();

}  // namespace redline::data
