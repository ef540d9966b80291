#include "data/decode.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <png.h>

#include "base/error.h"
#include "data/baseline_jpeg.h"
#include "data/jpeg_reader.h"

namespace redline::data {
namespace {

constexpr std::uint8_t kPngMagic[] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};

bool starts_with(std::span<const std::uint8_t> bytes, std::span<const std::uint8_t> magic) {
  return bytes.size() >= magic.size() && std::equal(magic.begin(), magic.end(), bytes.begin());
}

// libpng's simplified reader: it keeps its own error handling inside, and frees on every path.
struct PngReader {
  png_image image;

  explicit PngReader(std::span<const std::uint8_t> bytes) {
    std::memset(&image, 0, sizeof(image));
    image.version = PNG_IMAGE_VERSION;
    if (!png_image_begin_read_from_memory(&image, bytes.data(), bytes.size()))
      throw DataError("PNG: {}", static_cast<const char*>(image.message));
  }
  ~PngReader() { png_image_free(&image); }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;
};

ImageInfo open_png(std::span<const std::uint8_t> bytes) {
  const PngReader reader(bytes);
  ImageInfo info;
  info.format = ImageFormat::png;
  info.width = static_cast<int>(reader.image.width);
  info.height = static_cast<int>(reader.image.height);
  info.channels = PNG_IMAGE_SAMPLE_CHANNELS(reader.image.format & ~PNG_FORMAT_FLAG_COLORMAP);
  return info;
}

}  // namespace

const char* format_name(ImageFormat format) { return format == ImageFormat::jpeg ? "JPEG" : "PNG"; }

int choose_shrink(const Rect& region, int target_width, int target_height) {
  for (int shrink : {8, 4, 2})
    if (region.width >= target_width * shrink && region.height >= target_height * shrink) return shrink;
  return 1;
}

Decoder::Decoder(const DecodeLimits& limits)
    : limits_(limits), baseline_(std::make_unique<BaselineJpeg>()), jpeg_(std::make_unique<JpegReader>()) {}
Decoder::~Decoder() = default;
Decoder::Decoder(Decoder&&) noexcept = default;
Decoder& Decoder::operator=(Decoder&&) noexcept = default;

ImageInfo Decoder::open(std::span<const std::uint8_t> bytes) {
  close();
  warning_.clear();
  if (bytes.empty()) throw DataError("the file is empty");
  const std::uint8_t jpeg_magic[] = {0xff, 0xd8};
  if (starts_with(bytes, jpeg_magic)) {
    is_baseline_ = baseline_->open(bytes, info_);
    if (!is_baseline_) info_ = jpeg_->open(bytes);
  } else if (starts_with(bytes, kPngMagic)) {
    info_ = open_png(bytes);
  } else {
    throw DataError("neither a JPEG nor a PNG");
  }
  if (info_.width <= 0 || info_.height <= 0) throw DataError("an image without pixels");
  if (std::int64_t{info_.width} * info_.height > limits_.max_pixels)
    throw DataError("{} × {} pixels, more than the limit of {}", info_.width, info_.height,
                    limits_.max_pixels);
  bytes_ = bytes;
  return info_;
}

bool Decoder::plain_jpeg() const {
  return !bytes_.empty() && info_.format == ImageFormat::jpeg && (is_baseline_ || jpeg_->plain());
}

Pixels Decoder::decode() { return decode({0, 0, info_.width, info_.height}, 1); }

void Decoder::check_region(const Rect& region, int shrink) const {
  check(!bytes_.empty(), "decode() without an open image");
  check(region.x >= 0 && region.y >= 0 && region.width > 0 && region.height > 0 &&
            region.width <= info_.width - region.x && region.height <= info_.height - region.y,
        "a region outside its image");
  check(shrink == 1 || shrink == 2 || shrink == 4 || shrink == 8, "a shrink of {}", shrink);
}

void Decoder::close() {
  bytes_ = {};
  is_baseline_ = false;
  if (memory_.bytes() == 0) return;
  pixels_ = {};
  baseline_->release();
  jpeg_->release();
  memory_ = {};
}

// Before a large image is decoded. pixels: whether they are kept.
void Decoder::take_memory(const Rect& region, int shrink, bool pixels) {
  const std::int64_t all = std::int64_t{info_.width} * info_.height;
  std::int64_t needed = 0;
  if (info_.format == ImageFormat::png) {
    needed = all * 4;
  } else {
    if (pixels)
      needed = std::int64_t{region.width} * region.height / shrink / shrink * std::max(3, info_.channels);
    if (!is_baseline_ && jpeg_->keeps_coefficients()) needed += all * info_.channels * 2;
  }
  if (needed <= std::max(kSmallImage, memory_.bytes())) return;
  memory_ = {};  // never wait while holding some
  memory_ = MemoryLease(needed);
}

bool Decoder::decode_planes(const Rect& region, int shrink, Planes& out) {
  check_region(region, shrink);
  if (is_baseline_) take_memory(region, shrink, true);
  return is_baseline_ && baseline_->decode(region, shrink, out);
}

Pixels Decoder::decode(const Rect& region, int shrink) {
  check_region(region, shrink);
  try {
    if (std::exchange(is_baseline_, false)) jpeg_->open(bytes_);
    take_memory(region, shrink, true);
    if (info_.format == ImageFormat::png) return decode_png();
    const Pixels pixels = jpeg_->read(region, shrink, pixels_);
    warning_ = jpeg_->warning();
    bytes_ = {};  // libjpeg's state is spent
    return pixels;
  } catch (...) {
    close();
    throw;
  }
}

void Decoder::examine(bool thorough) {
  check(!bytes_.empty(), "examine() without an open image");
  const Rect whole{0, 0, info_.width, info_.height};
  try {
    Planes planes;
    // At an eighth of its size: all of its bits are read, and few pixels made of them.
    if (thorough || !decode_planes(whole, 8, planes)) {
      if (std::exchange(is_baseline_, false)) jpeg_->open(bytes_);
      take_memory(whole, 1, false);
      if (info_.format == ImageFormat::png) {
        decode_png();
      } else {
        jpeg_->examine(pixels_);
        warning_ = jpeg_->warning();
      }
    }
  } catch (...) {
    close();
    throw;
  }
  close();
}

Pixels Decoder::decode_png() {
  PngReader reader(bytes_);
  // With alpha, so that it can be dropped: without, libpng blends it into a background of its choice.
  reader.image.format = PNG_FORMAT_RGBA;
  const std::size_t row = std::size_t{reader.image.width} * 4;
  const std::size_t needed = row * reader.image.height;
  if (pixels_.size() < needed) pixels_.resize(needed);
  if (!png_image_finish_read(&reader.image, nullptr, pixels_.data(), static_cast<png_int_32>(row), nullptr))
    throw DataError("PNG: {}", static_cast<const char*>(reader.image.message));
  const std::size_t count = std::size_t{reader.image.width} * reader.image.height;
  std::uint8_t* to = pixels_.data();
  const std::uint8_t* from = to;
  for (std::size_t i = 0; i < count; ++i, from += 4, to += 3) {
    to[0] = from[0];
    to[1] = from[1];
    to[2] = from[2];
  }
  Pixels out;
  out.data = pixels_.data();
  out.width = info_.width;
  out.height = info_.height;
  out.stride = std::ptrdiff_t{info_.width} * 3;
  return out;
}

}  // namespace redline::data
