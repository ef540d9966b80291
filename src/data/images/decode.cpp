#include "data/images/decode.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/error.h"
#include "data/images/baseline_jpeg.h"
#include "data/images/codecs.h"
#include "data/images/jpeg_reader.h"

namespace redline::data {
namespace {

bool begins_jpeg(Bytes bytes) { return bytes.size() >= 2 && bytes[0] == 0xff && bytes[1] == 0xd8; }

}  // namespace

bool begins_like_image(std::span<const std::uint8_t> bytes) {
  return begins_jpeg(bytes) || find_codec(bytes) != nullptr;
}

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
  codec_ = nullptr;
  if (begins_jpeg(bytes)) {
    open_jpeg(bytes);
  } else {
    const Codec* codec = find_codec(bytes);
    if (codec == nullptr) throw DataError("not an image: Redline reads {}", formats_text());
    if (codec->open == nullptr)
      throw DataError("a {}, which this build of Redline cannot read because it has no {}", codec->name,
                      codec->library);
    info_ = codec->open(bytes);
    codec_ = codec;
  }
  check_size();
  bytes_ = bytes;
  return info_;
}

void Decoder::open_jpeg(std::span<const std::uint8_t> bytes) {
  // The baseline decoder copies the file, so a large one needs its memory now, with that of the pixels.
  if (const auto size = std::ssize(bytes); size > kSmallImage) {
    info_ = jpeg_->open(bytes);
    check_size();
    memory_ = MemoryLease(MemoryFor::decoding, size + std::int64_t{info_.width} * info_.height * 3,
                          limits_.give_up);
  }
  is_baseline_ = baseline_->open(bytes, info_);
  if (is_baseline_) return;
  try {
    info_ = jpeg_->open(bytes);
  } catch (...) {
    close();
    throw;
  }
}

void Decoder::check_size() const {
  if (info_.width <= 0 || info_.height <= 0) throw DataError("an image without pixels");
  if (std::int64_t{info_.width} * info_.height > limits_.max_pixels)
    throw DataError("{} × {} pixels, more than the limit of {}", info_.width, info_.height,
                    limits_.max_pixels);
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
  pixels_ = std::vector<std::uint8_t>();  // assigning {} would keep the memory
  baseline_->release();
  jpeg_->release();
  memory_ = {};
}

// Before a large image is decoded. pixels: whether they are kept.
void Decoder::take_memory(const Rect& region, int shrink, bool pixels) {
  const std::int64_t all = std::int64_t{info_.width} * info_.height;
  std::int64_t needed = 0;
  if (codec_ != nullptr) {
    needed = all * codec_->memory;
  } else {
    if (pixels)
      needed = std::int64_t{region.width} * region.height / shrink / shrink * std::max(3, info_.channels);
    if (!is_baseline_ && jpeg_->keeps_coefficients()) needed += all * info_.channels * 2;
  }
  if (needed <= std::max(kSmallImage, memory_.bytes())) return;
  if (!is_baseline_) baseline_->release();
  memory_ = {};  // never wait while holding some
  memory_ = MemoryLease(MemoryFor::decoding, needed, limits_.give_up);
}

std::size_t Decoder::kept_bytes() const { return pixels_.capacity() + baseline_->kept_bytes(); }

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
    if (codec_ != nullptr) return decode_whole();
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
      if (codec_ != nullptr) {
        decode_whole();
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

Pixels Decoder::decode_whole() {
  codec_->decode(bytes_, info_, pixels_);
  Pixels out;
  out.data = pixels_.data();
  out.width = info_.width;
  out.height = info_.height;
  out.stride = std::ptrdiff_t{info_.width} * 3;
  return out;
}

}  // namespace redline::data
