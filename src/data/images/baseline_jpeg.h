// Decodes the usual kind of JPEG (baseline, Huffman-coded, 8 bits, YCbCr or grey) directly to planes: without
// colour conversion or upsampling of pixels that resizing will merge, and with a faster bit reader than
// libjpeg's. Unusual or damaged files are left to libjpeg (jpeg_reader.h). Private to the decoder.
//
// Why not libjpeg for these too: its planes (jpeg_read_raw_data) come at little more than half the speed,
// resizing included, because it transforms every block above and beside a crop and reads one code at a time
// (tests/data/jpeg_bench.cpp measures both). If that advantage disappears, remove this class.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "data/images/image.h"
#include "data/images/kernels/kernels.h"

namespace redline::data {

// One per thread; keeps its tables and buffers from image to image.
class BaselineJpeg {
 public:
  // Reads the header and looks for the file's end. False if this class cannot decode the file. The bytes must
  // stay valid until decode() is done.
  bool open(std::span<const std::uint8_t> bytes, ImageInfo& info);

  // Decodes at least `region` of the opened image, shrunk by 1, 2, 4 or 8, into memory that lives until the
  // next decode(). False if the data is damaged before the region's end; the rest is not examined. May be
  // called again.
  bool decode(const Rect& region, int shrink, Planes& out, const Kernels& with = kernels());

  // Frees the memory of a large image. What was opened must be opened again.
  void release();
  std::size_t kept_bytes() const;

 private:
  struct Component {
    int id = 0, h = 1, v = 1, steps = 0, dc = 0, ac = 0;
  };

  bool read_markers(std::span<const std::uint8_t> bytes);
  bool read_quantisation(std::span<const std::uint8_t> segment);
  bool read_codes(std::span<const std::uint8_t> segment);
  bool read_frame(std::span<const std::uint8_t> segment);
  bool read_scan_header(std::span<const std::uint8_t> segment);
  bool colours_are_usual() const;
  bool unstuff(std::span<const std::uint8_t> scan);

  int width_ = 0, height_ = 0;
  std::vector<Component> components_;
  std::array<std::array<std::int16_t, 64>, 4> steps_{};  // quantisation, row by row
  std::array<bool, 4> has_steps_{};
  std::array<JpegCodes, 4> dc_, ac_;
  std::array<bool, 4> has_dc_{}, has_ac_{};
  int restart_ = 0;  // MCUs between restarts; 0: none
  bool jfif_ = false;
  int adobe_ = -1;  // its colour transform; -1: no such marker

  std::vector<std::uint8_t> scan_;  // compressed data without stuffing, and zeros after it
  std::vector<std::size_t>
      intervals_;  // where in scan_ each restart interval begins, and where the last ends

  std::array<std::vector<std::uint8_t>, 3> pixels_;
};

}  // namespace redline::data
