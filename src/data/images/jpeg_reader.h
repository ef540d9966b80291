// A C++ wrapper of libjpeg: its longjmp errors become DataError, and its memory is freed on every path.
// Private to the decoder.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/images/image.h"

namespace redline::data {

class JpegReader {
 public:
  JpegReader();
  ~JpegReader();

  // Reads the header; the bytes must stay until read() is done.
  ImageInfo open(std::span<const std::uint8_t> bytes);

  // Whether the opened file is of the kind that hardware decoders support: complete, one baseline scan of
  // 8-bit samples, grey or YCbCr with chroma at full or half resolution.
  bool plain() const;

  // Decodes at least `region`, given in pixels of the stored image, into storage.
  Pixels read(const Rect& region, int shrink, std::vector<std::uint8_t>& storage);

  // Decodes the whole image, keeping one row of it at a time in storage.
  void examine(std::vector<std::uint8_t>& storage);

  // Whether libjpeg keeps all coefficients of the opened image in memory: a progressive file.
  bool keeps_coefficients() const;
  void release();  // what libjpeg holds of the opened image

  std::string warning() const;

 private:
  struct State;  // libjpeg's structures
  std::unique_ptr<State> state_;
};

}  // namespace redline::data
