// libjpeg behind a C++ face: its longjmp errors become DataError, and its memory is freed on every path.
// Private to the decoder.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/image.h"

namespace redline::data {

class JpegReader {
 public:
  JpegReader();
  ~JpegReader();

  // Reads the header; the bytes must stay until read() is done.
  ImageInfo open(std::span<const std::uint8_t> bytes);

  // Decodes at least `region`, given in pixels of the stored image, into storage.
  Pixels read(const Rect& region, int shrink, std::vector<std::uint8_t>& storage);

  std::string warning() const;

 private:
  struct State;  // libjpeg's structures
  std::unique_ptr<State> state_;
};

}  // namespace redline::data
