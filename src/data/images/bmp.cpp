// BMP, Windows' and OS/2's: 1, 4, 8, 16, 24 or 32 bits a pixel, plain, run-length coded, or with bit masks.
#include <algorithm>
#include <array>
#include <bit>

#include "base/error.h"
#include "data/images/codecs.h"

namespace redline::data {
namespace {

enum : std::uint32_t { kPlain = 0, kRunLength8 = 1, kRunLength4 = 2, kMasks = 3, kAlphaMasks = 6 };

struct Header {
  int width = 0, height = 0;
  bool top_down = false;
  int bits = 0;
  std::uint32_t compression = kPlain;
  std::size_t palette = 0, palette_entry = 4, colors = 0;  // where it begins, bytes of an entry, and entries
  std::array<std::uint32_t, 3> masks{};                    // red, green, blue; of 16 and 32 bits
  std::size_t data = 0;                                    // where pixels begin

  std::size_t row() const {
    return (static_cast<std::size_t>(width) * static_cast<std::size_t>(bits) + 31) / 32 * 4;
  }
};

// Little-endian numbers; those beyond the end are an error.
class Reader {
 public:
  explicit Reader(Bytes bytes) : bytes_(bytes) {}
  std::uint32_t number(std::size_t at, std::size_t size) const {
    if (at > bytes_.size() || size > bytes_.size() - at) throw DataError("BMP: the header is cut off");
    std::uint32_t value = 0;
    for (std::size_t i = 0; i < size; ++i) value |= std::uint32_t{bytes_[at + i]} << (8 * i);
    return value;
  }
  std::uint32_t u16(std::size_t at) const { return number(at, 2); }
  std::uint32_t u32(std::size_t at) const { return number(at, 4); }

 private:
  Bytes bytes_;
};

void check_header(const Header& header) {
  const bool usual = (header.compression == kPlain &&
                      std::ranges::count(std::array{1, 4, 8, 16, 24, 32}, header.bits) > 0) ||
                     (header.compression == kRunLength8 && header.bits == 8 && !header.top_down) ||
                     (header.compression == kRunLength4 && header.bits == 4 && !header.top_down) ||
                     ((header.compression == kMasks || header.compression == kAlphaMasks) &&
                      (header.bits == 16 || header.bits == 32));
  if (!usual)
    throw DataError("BMP: {} bits per pixel with compression {} is not supported", header.bits,
                    header.compression);
}

Header read_header(Bytes bytes) {
  const Reader reader(bytes);
  constexpr std::size_t kDib = 14;
  const std::size_t size = reader.u32(kDib);
  Header header;
  header.data = reader.u32(10);
  if (size == 12) {
    header.width = static_cast<int>(reader.u16(kDib + 4));
    header.height = static_cast<int>(reader.u16(kDib + 6));
    header.bits = static_cast<int>(reader.u16(kDib + 10));
    header.palette_entry = 3;
  } else if (size >= 40 && size <= 256) {
    const std::int64_t width = static_cast<std::int32_t>(reader.u32(kDib + 4));
    const std::int64_t height = static_cast<std::int32_t>(reader.u32(kDib + 8));
    header.top_down = height < 0;
    if (width <= 0 || height == 0 || height == std::int64_t{INT32_MIN}) throw DataError("BMP: no pixels");
    header.width = static_cast<int>(width);
    header.height = static_cast<int>(header.top_down ? -height : height);
    header.bits = static_cast<int>(reader.u16(kDib + 14));
    header.compression = reader.u32(kDib + 16);
    header.colors = reader.u32(kDib + 32);
  } else {
    throw DataError("BMP: unknown header of {} bytes", size);
  }
  check_header(header);
  header.palette = kDib + size;
  // With more than 8 bits the palette is only a hint for screens, and is ignored.
  const std::size_t most = header.bits <= 8 ? std::size_t{1} << header.bits : 0;
  header.colors = header.colors == 0 ? most : std::min(header.colors, most);
  if (header.bits <= 8) return header;
  if (header.compression != kPlain) {  // after a header of 40 bytes, and within longer ones
    for (std::size_t i = 0; i < 3; ++i) header.masks[i] = reader.u32(kDib + 40 + 4 * i);
  } else {
    header.masks = header.bits == 16 ? std::array<std::uint32_t, 3>{0x7c00, 0x3e0, 0x1f}
                                     : std::array<std::uint32_t, 3>{0xff0000, 0xff00, 0xff};
  }
  return header;
}

using Palette = std::array<std::array<std::uint8_t, 3>, 256>;

Palette read_palette(Bytes bytes, const Header& header) {
  const Reader reader(bytes);
  Palette palette{};
  for (std::size_t i = 0; i < header.colors; ++i) {
    const std::uint32_t bgr = reader.number(header.palette + i * header.palette_entry, 3);
    palette[i] = {static_cast<std::uint8_t>(bgr >> 16), static_cast<std::uint8_t>(bgr >> 8),
                  static_cast<std::uint8_t>(bgr)};
  }
  return palette;
}

// The masked part of a pixel, as 0..255.
std::uint8_t masked(std::uint32_t pixel, std::uint32_t mask) {
  if (mask == 0) return 0;
  const int shift = std::countr_zero(mask);
  const std::uint64_t most = mask >> shift;
  return static_cast<std::uint8_t>(std::uint64_t{(pixel & mask) >> shift} * 255 / most);
}

// One row of a file that is not run-length coded.
void read_row(const std::uint8_t* from, const Header& header, const Palette& palette, std::uint8_t* rgb) {
  const auto bits = static_cast<std::size_t>(header.bits);
  for (std::size_t x = 0; x < static_cast<std::size_t>(header.width); ++x, rgb += 3) {
    if (bits <= 8) {
      const std::size_t at = x * bits;
      const unsigned index = from[at / 8] >> (8 - bits - at % 8) & ((1U << bits) - 1);
      std::ranges::copy(palette[index], rgb);
    } else if (bits == 24) {
      rgb[0] = from[3 * x + 2], rgb[1] = from[3 * x + 1], rgb[2] = from[3 * x];
    } else {
      std::uint32_t pixel = 0;
      for (std::size_t i = 0; i < bits / 8; ++i) pixel |= std::uint32_t{from[bits / 8 * x + i]} << (8 * i);
      for (std::size_t i = 0; i < 3; ++i) rgb[i] = masked(pixel, header.masks[i]);
    }
  }
}

// Run-length codes: pairs of a count and a colour (or two, of 4 bits each), and after a 0 an end of row (0),
// of the picture (1), a move (2), or a number of literal colours. Pixels that no code sets have the first
// colour.
void read_runs(Bytes codes, const Header& header, const Palette& palette, std::uint8_t* rgb) {
  const auto width = static_cast<std::size_t>(header.width), height = static_cast<std::size_t>(header.height);
  for (std::size_t i = 0; i < width * height; ++i) std::ranges::copy(palette[0], rgb + 3 * i);
  const bool four = header.bits == 4;
  std::size_t x = 0, y = 0, at = 0;  // y from the bottom
  const auto put = [&](unsigned index) {
    if (x < width && y < height) std::ranges::copy(palette[index], rgb + 3 * ((height - 1 - y) * width + x));
    ++x;
  };
  const auto next = [&]() -> unsigned {
    if (at >= codes.size()) throw DataError("BMP: cut off");
    return codes[at++];
  };
  while (y < height) {
    const unsigned count = next(), value = next();
    if (count > 0) {
      for (unsigned i = 0; i < count; ++i) put(four ? (i % 2 == 0 ? value >> 4 : value & 15) : value);
    } else if (value == 0) {
      x = 0, ++y;
    } else if (value == 1) {
      return;
    } else if (value == 2) {
      x += next();
      y += next();
    } else {
      const unsigned bytes = four ? (value + 1) / 2 : value;
      for (unsigned i = 0; i < bytes; ++i) {
        const unsigned byte = next();
        put(four ? byte >> 4 : byte);
        if (four && 2 * i + 1 < value) put(byte & 15);
      }
      if (bytes % 2 == 1) next();
    }
  }
}

}  // namespace

ImageInfo open_bmp(Bytes bytes) {
  const Header header = read_header(bytes);
  return {ImageFormat::bmp, header.width, header.height, 3};
}

void decode_bmp(Bytes bytes, const ImageInfo& info, std::vector<std::uint8_t>& pixels) {
  const Header header = read_header(bytes);
  const Palette palette = read_palette(bytes, header);
  if (header.data > bytes.size()) throw DataError("BMP: cut off");
  const Bytes data = bytes.subspan(header.data);
  if (header.compression == kRunLength8 || header.compression == kRunLength4)
    return read_runs(data, header, palette, room_for(info, 3, pixels));
  const auto height = static_cast<std::size_t>(header.height);
  if (data.size() / header.row() < height) throw DataError("BMP: cut off");
  std::uint8_t* rgb = room_for(info, 3, pixels);
  for (std::size_t y = 0; y < height; ++y) {
    const std::size_t stored = header.top_down ? y : height - 1 - y;
    read_row(data.data() + stored * header.row(), header, palette,
             rgb + 3 * y * static_cast<std::size_t>(header.width));
  }
}

}  // namespace redline::data
