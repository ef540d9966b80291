// From the bytes of an image file to RGB pixels, decoding no more of a JPEG than a crop needs. Other formats
// are decoded whole (codecs.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/images/decode_memory.h"
#include "data/images/image.h"

namespace redline::data {

struct DecodeLimits {
  std::int64_t max_pixels = 100'000'000;  // a larger image is refused before it is decoded
  // Once true, waiting for the memory of a large image ends with Stopped (decode_memory.h). May be empty.
  std::function<bool()> give_up = {};
};

// Whether these are the first bytes of an image file in a format that is known, if not read by this build.
bool begins_like_image(std::span<const std::uint8_t> bytes);

// The largest shrink (1, 2, 4 or 8) at which a region of the stored image still has at least the target's
// pixels in both directions.
int choose_shrink(const Rect& region, int target_width, int target_height);

class BaselineJpeg;  // photographs as they mostly are
class JpegReader;    // wraps libjpeg
struct Codec;        // of another format

// One per thread; keeps its buffers from image to image. After a failure it is ready for the next image.
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

  // Whether the opened image is a JPEG that hardware decoders support: complete, one baseline scan of 8-bit
  // samples, grey or YCbCr with chroma at full or half resolution. Its entropy-coded data is not looked at.
  bool plain_jpeg() const;

  // Decodes at least `region` of the opened image, shrunk by 1, 2, 4 or 8 (formats other than JPEG whole, at
  // full size). The pixels are valid until the next open(). Throws DataError if the file is truncated, or the
  // part that it reads is damaged; damage of a JPEG below the region is not detected.
  Pixels decode(const Rect& region, int shrink = 1);

  // As above, but directly to the planes that a JPEG stores, which is several times faster. False if the
  // image is not a JPEG of the usual kind or seems damaged; decode() then decodes it or throws. The planes
  // are valid until the next open().
  bool decode_planes(const Rect& region, int shrink, Planes& out);

  // The whole image, at full size.
  Pixels decode();

  // Decodes the whole opened image as a check, without keeping pixels, and closes it. Throws DataError as
  // decode() does. thorough: also sets warning(), which takes longer.
  void examine(bool thorough = false);

  // Closes the opened image and releases the memory of a large one (decode_memory.h), which decoders of other
  // threads may be waiting for. open() does the same.
  void close();

  // Bytes that are kept for the next image.
  std::size_t kept_bytes() const;

  // The warning of a JPEG's decoder ("extraneous bytes before marker"); empty if none.
  const std::string& warning() const { return warning_; }

 private:
  void open_jpeg(std::span<const std::uint8_t> bytes);
  void check_size() const;
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
