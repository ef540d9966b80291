// From the bytes of an image file to RGB pixels, decoding no more of a JPEG than a crop needs. Other formats
// are decoded whole (codecs.h).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/decode_memory.h"
#include "data/image.h"

namespace redline::data {

struct DecodeLimits {
  std::int64_t max_pixels = 100'000'000;  // a larger image is refused before it is decoded
};

// The largest shrink (1, 2, 4 or 8) at which a region of the stored image still has at least the target's
// pixels in both directions.
int choose_shrink(const Rect& region, int target_width, int target_height);

class BaselineJpeg;  // photographs as they mostly are
class JpegReader;    // wraps libjpeg
struct Codec;        // of another format

// One a thread; keeps its buffers from image to image. After a failure it is ready for the next image.
//
// Greyscale and palette images become RGB; CMYK is converted by Adobe's convention (inverted, as every camera
// and editor writes it); alpha is dropped; orientation tags are not applied, as is usual in training.
class Decoder {
 public:
  explicit Decoder(const DecodeLimits& limits = {});
  ~Decoder();
  Decoder(Decoder&&) noexcept;
  Decoder& operator=(Decoder&&) noexcept;

  // Reads the header. The bytes must stay until decode() is done. Throws DataError: not an image, damaged
  // header, an unsupported kind of JPEG, or too many pixels.
  ImageInfo open(std::span<const std::uint8_t> bytes);

  // Whether the opened image is a JPEG that decoders in hardware take: complete, one baseline scan of 8-bit
  // samples, grey or YCbCr with chroma at full or half resolution. Its entropy-coded data is not looked at.
  bool plain_jpeg() const;

  // Decodes at least `region` of the opened image, shrunk by 1, 2, 4 or 8 (others than JPEG whole, at
  // full size). The pixels live here until the next open(). Throws DataError when the file is cut off, or the
  // part that it reads damaged; a JPEG's damage below the region is not seen.
  Pixels decode(const Rect& region, int shrink = 1);

  // As above, straight to the planes that a JPEG stores, which is several times faster. False when the image
  // is not a JPEG of the usual kind or looks damaged; decode() may follow, and tells. The planes live here
  // until the next open().
  bool decode_planes(const Rect& region, int shrink, Planes& out);

  // The whole image, at full size.
  Pixels decode();

  // Decodes the whole opened image to be sure of it, without keeping pixels, and closes it. Throws DataError
  // as decode() does. thorough: so that warning() tells too, which takes longer.
  void examine(bool thorough = false);

  // Ends the use of the opened image and gives back what a large one took (decode_memory.h); decoders of
  // other threads may be waiting for it. open() does the same.
  void close();

  // What a JPEG's decoder complained about without giving up ("extraneous bytes before marker"); empty if
  // nothing.
  const std::string& warning() const { return warning_; }

 private:
  void check_region(const Rect& region, int shrink) const;
  void take_memory(const Rect& region, int shrink, bool pixels);
  Pixels decode_whole();

  DecodeLimits limits_;
  ImageInfo info_;
  std::span<const std::uint8_t> bytes_;
  std::unique_ptr<BaselineJpeg> baseline_;
  bool is_baseline_ = false;  // the open image is one for baseline_, and jpeg_ has not seen it
  std::unique_ptr<JpegReader> jpeg_;
  const Codec* codec_ = nullptr;  // of the open image; null for a JPEG
  std::vector<std::uint8_t> pixels_;
  MemoryLease memory_;
  std::string warning_;
};

}  // namespace redline::data
