#include "data/images/baseline_jpeg.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/error.h"

namespace redline::data {
namespace {

constexpr int kMaxDcSize = 11, kMaxAcSize = 10;

int divide_up(int value, int by) { return (value + by - 1) / by; }

// One code of the lookup, with its value.
struct Code {
  explicit Code(std::uint32_t entry)
      : length(entry & 0xff),
        run(entry >> 8 & 0xff),
        mask(entry >> 16),
        code_bits(length - static_cast<std::uint32_t>(std::bit_width(mask))) {}

  bool ends() const { return run == kJpegEndRun; }
  // An end of block is a value of zero at the current place, where there is none yet, and a long way on.
  std::uint32_t place() const { return ends() ? 0 : run; }

  std::uint32_t length, run, mask, code_bits;
};

// Combines the entries of several codes in a row.
void combine(JpegCodes& codes) {
  constexpr std::uint32_t kMask = (1U << kJpegLookup) - 1;
  for (std::uint32_t index = 0; index <= kMask; ++index) {
    // The code that begins after this many bits; of length 0 if it does not end within the known bits.
    const auto code_at = [&](std::uint32_t used) {
      const Code code(used < kJpegLookup ? codes.lookup[(index << used) & kMask] : 0);
      return used + code.code_bits <= kJpegLookup ? code : Code(0);
    };
    const Code first = code_at(0);
    if (first.length == 0) {
      codes.pairs[index] = std::uint64_t{kJpegNone} << 32;
      codes.skips[index] = kJpegNone << 8;
      continue;
    }
    Code last = first;
    std::uint32_t length = first.length, passed = 0;
    std::uint64_t value = 0;
    if (const Code next = code_at(length); !first.ends() && next.length > 0) {
      value = static_cast<std::uint16_t>(jpeg_value(
          static_cast<int>(index >> (kJpegLookup - length) & first.mask), static_cast<int>(first.mask)));
      passed = first.run + 1;
      length += next.length;
      last = next;
    }
    codes.pairs[index] = length | first.place() << 8 | value << 16 |
                         std::uint64_t{passed + last.place()} << 32 |
                         std::uint64_t{passed + last.run + 1} << 40 | std::uint64_t{last.mask} << 48;

    // Far enough that nothing can overflow.
    for (Code next = code_at(length); !last.ends() && next.length > 0 && passed < 64;
         next = code_at(length)) {
      passed += last.run + 1;
      length += next.length;
      last = next;
    }
    codes.skips[index] = length | (passed + last.place()) << 8 | (passed + last.run + 1) << 16;
  }
}

// Fills in the tables from counts and symbols; false when they are not a code, or not one of a baseline
// image.
bool build(JpegCodes& codes, bool ac) {
  codes.lookup.fill(0);
  codes.limit.fill(0);
  std::uint32_t code = 0;
  std::size_t next = 0;
  for (int length = 1; length <= 16; ++length, code <<= 1) {
    const int number = codes.counts[static_cast<std::size_t>(length - 1)];
    codes.offset[static_cast<std::size_t>(length)] =
        static_cast<std::int32_t>(next) - static_cast<std::int32_t>(code);
    for (int i = 0; i < number; ++i, ++code, ++next) {
      if (code >= 1U << length) return false;
      const int symbol = codes.symbols[next], size = ac ? symbol & 15 : symbol, run = ac ? symbol >> 4 : 0;
      if (size > (ac ? kMaxAcSize : kMaxDcSize)) return false;
      if (ac && size == 0 && run != 0 && run != 15) return false;  // has a meaning in progressive files only
      if (length > kJpegLookup) continue;
      const int spare = kJpegLookup - length;
      std::fill_n(codes.lookup.begin() + (code << spare), 1 << spare, jpeg_entry(symbol, ac, length));
    }
    codes.limit[static_cast<std::size_t>(length)] = code << (16 - length);
  }
  if (ac) combine(codes);
  return next > 0;
}

}  // namespace

bool BaselineJpeg::open(std::span<const std::uint8_t> bytes, ImageInfo& info) {
  components_.clear();
  has_steps_ = has_dc_ = has_ac_ = {};
  restart_ = 0;
  jfif_ = false;
  adobe_ = -1;
  if (!read_markers(bytes)) return false;
  info.format = ImageFormat::jpeg;
  info.width = width_;
  info.height = height_;
  info.channels = static_cast<int>(components_.size());
  return true;
}

bool BaselineJpeg::read_markers(std::span<const std::uint8_t> bytes) {
  if (bytes.size() < 4 || bytes[0] != 0xff || bytes[1] != 0xd8) return false;
  for (std::size_t at = 2;;) {
    if (bytes.size() - at < 4 || bytes[at] != 0xff) return false;
    const std::uint8_t marker = bytes[at + 1];
    const std::size_t length = std::size_t{bytes[at + 2]} << 8 | bytes[at + 3];
    if (length < 2 || bytes.size() - at - 2 < length) return false;
    const std::span<const std::uint8_t> segment = bytes.subspan(at + 4, length - 2);
    at += 2 + length;
    bool usual = true;
    if (marker == 0xc0 || marker == 0xc1) {
      usual = components_.empty() && read_frame(segment);
    } else if (marker == 0xc4) {
      usual = read_codes(segment);
    } else if (marker == 0xdb) {
      usual = read_quantisation(segment);
    } else if (marker == 0xdd) {
      usual = segment.size() == 2;
      if (usual) restart_ = segment[0] << 8 | segment[1];
    } else if (marker == 0xe0) {
      jfif_ = jfif_ || (segment.size() >= 5 && std::memcmp(segment.data(), "JFIF", 5) == 0);
    } else if (marker == 0xee) {
      if (segment.size() >= 12 && std::memcmp(segment.data(), "Adobe", 5) == 0) adobe_ = segment[11];
    } else if (marker == 0xda) {
      return read_scan_header(segment) && colours_are_usual() && unstuff(bytes.subspan(at));
    } else {
      usual =
          marker >= 0xe1 && marker <= 0xfe && (marker <= 0xef || marker == 0xfe);  // comments of all kinds
    }
    if (!usual) return false;
  }
}

bool BaselineJpeg::read_quantisation(std::span<const std::uint8_t> segment) {
  for (; !segment.empty(); segment = segment.subspan(65)) {
    if (segment.size() < 65 || segment[0] > 3) return false;  // of more than 8 bits, or a fifth
    for (std::size_t i = 0; i < 64; ++i) steps_[segment[0]][kJpegPlaces[i]] = segment[1 + i];
    has_steps_[segment[0]] = true;
  }
  return true;
}

bool BaselineJpeg::read_codes(std::span<const std::uint8_t> segment) {
  while (!segment.empty()) {
    if (segment.size() < 17 || (segment[0] & 0x0f) > 3 || segment[0] >> 4 > 1) return false;
    const bool ac = segment[0] >> 4 == 1;
    const std::size_t which = segment[0] & 0x0f;
    const auto counts = segment.subspan(1, 16);
    std::size_t total = 0;
    for (const std::uint8_t count : counts) total += count;
    if (total > 256 || segment.size() - 17 < total) return false;
    const auto symbols = segment.subspan(17, total);
    JpegCodes& codes = ac ? ac_[which] : dc_[which];
    // Most files have the same tables as the one before.
    if (!std::ranges::equal(counts, codes.counts) || !std::ranges::equal(symbols, codes.symbols)) {
      std::ranges::copy(counts, codes.counts.begin());
      codes.symbols.assign(symbols.begin(), symbols.end());
      if (!build(codes, ac)) {
        codes.counts.fill(0);
        codes.symbols.clear();
        return false;
      }
    }
    (ac ? has_ac_ : has_dc_)[which] = true;
    segment = segment.subspan(17 + total);
  }
  return true;
}

bool BaselineJpeg::read_frame(std::span<const std::uint8_t> segment) {
  if (segment.size() < 6 || segment[0] != 8) return false;
  height_ = segment[1] << 8 | segment[2];
  width_ = segment[3] << 8 | segment[4];
  const int count = segment[5];
  if (height_ < 1 || width_ < 1 || (count != 1 && count != 3) ||
      segment.size() != 6 + 3 * static_cast<std::size_t>(count))
    return false;
  for (int i = 0; i < count; ++i) {
    const auto at = 6 + 3 * static_cast<std::size_t>(i);
    Component c;
    c.id = segment[at];
    c.h = segment[at + 1] >> 4;
    c.v = segment[at + 1] & 0x0f;
    c.steps = segment[at + 2];
    if (count == 1) c.h = c.v = 1;  // the blocks of a single component come one by one
    const int most = i == 0 ? 2 : 1;
    if (c.h < 1 || c.h > most || c.v < 1 || c.v > most || c.steps > 3) return false;
    components_.push_back(c);
  }
  return true;
}

bool BaselineJpeg::read_scan_header(std::span<const std::uint8_t> segment) {
  const std::size_t count = components_.size();
  if (count == 0 || segment.size() != 4 + 2 * count || segment[0] != count) return false;
  for (std::size_t i = 0; i < count; ++i) {
    Component& c = components_[i];
    c.dc = segment[2 + 2 * i] >> 4;
    c.ac = segment[2 + 2 * i] & 0x0f;
    if (segment[1 + 2 * i] != c.id || c.dc > 3 || c.ac > 3) return false;
    if (!has_dc_[static_cast<std::size_t>(c.dc)] || !has_ac_[static_cast<std::size_t>(c.ac)] ||
        !has_steps_[static_cast<std::size_t>(c.steps)])
      return false;
  }
  const auto rest = segment.last(3);
  return rest[0] == 0 && rest[1] == 63 && rest[2] == 0;
}

// libjpeg's rule for what three components are.
bool BaselineJpeg::colours_are_usual() const {
  if (components_.size() == 1 || jfif_) return true;
  if (adobe_ >= 0) return adobe_ == 1;
  return components_[0].id == 1 && components_[1].id == 2 && components_[2].id == 3;
}

// Copies compressed data without the zeros that follow each 0xff, up to the end marker, which has to be
// there.
bool BaselineJpeg::unstuff(std::span<const std::uint8_t> scan) {
  if (scan_.size() < scan.size() + kJpegSlack) scan_.resize(scan.size() + kJpegSlack);
  intervals_.assign(1, 0);
  std::uint8_t* to = scan_.data();
  const std::uint8_t* at = scan.data();
  const std::uint8_t* const end = at + scan.size();
  for (;;) {
    const auto* mark =
        static_cast<const std::uint8_t*>(std::memchr(at, 0xff, static_cast<std::size_t>(end - at)));
    if (!mark || end - mark < 2) return false;
    std::memcpy(to, at, static_cast<std::size_t>(mark - at));
    to += mark - at;
    const std::uint8_t code = mark[1];
    at = mark + 2;
    if (code == 0) {
      *to++ = 0xff;
    } else if (code >= 0xd0 && code <= 0xd7) {
      if (restart_ == 0 || code - 0xd0 != static_cast<int>((intervals_.size() - 1) % 8)) return false;
      intervals_.push_back(static_cast<std::size_t>(to - scan_.data()));
    } else if (code == 0xd9) {
      break;
    } else if (code == 0xff) {
      at = mark + 1;  // a fill byte
    } else {
      return false;
    }
  }
  intervals_.push_back(static_cast<std::size_t>(to - scan_.data()));
  std::memset(to, 0, kJpegSlack);
  return true;
}

void BaselineJpeg::release() {
  components_.clear();
  pixels_ = {};
  scan_ = std::vector<std::uint8_t>();  // assigning {} would keep the memory
}

std::size_t BaselineJpeg::kept_bytes() const {
  std::size_t bytes = scan_.capacity();
  for (const std::vector<std::uint8_t>& plane : pixels_) bytes += plane.capacity();
  return bytes;
}

bool BaselineJpeg::decode(const Rect& region, int shrink, Planes& out, const Kernels& with) {
  check(!components_.empty(), "decode() without an open image");
  const int h = components_[0].h, v = components_[0].v;
  const int left = region.x / (8 * h), right = divide_up(region.x + region.width, 8 * h);
  const int top = region.y / (8 * v), bottom = divide_up(region.y + region.height, 8 * v);
  JpegScan scan;
  scan.count = out.count = static_cast<int>(components_.size());
  scan.across = divide_up(width_, 8 * h);
  scan.restart = restart_;
  scan.region = {left, top, right - left, bottom - top};
  scan.data = scan_.data();
  scan.intervals = &intervals_;
  for (std::size_t i = 0; i < components_.size(); ++i) {
    const Component& c = components_[i];
    // Chroma stored at half the resolution is scaled down by less.
    const int own = std::max(1, shrink / std::max(h / c.h, v / c.v)), side = 8 / own;
    const int columns = (right - left) * c.h * side, rows = (bottom - top) * c.v * side;
    const std::size_t needed = static_cast<std::size_t>(columns) * static_cast<std::size_t>(rows);
    if (pixels_[i].size() < needed) pixels_[i].resize(needed);
    scan.components[i] = {c.h,
                          c.v,
                          own,
                          &dc_[static_cast<std::size_t>(c.dc)],
                          &ac_[static_cast<std::size_t>(c.ac)],
                          steps_[static_cast<std::size_t>(c.steps)].data(),
                          pixels_[i].data(),
                          columns};
    Plane& plane = out.plane[i];
    plane.data = pixels_[i].data();
    plane.stride = columns;
    plane.step_x = own * h / c.h;
    plane.step_y = own * v / c.v;
    plane.origin_x = left * c.h * side;
    plane.origin_y = top * c.v * side;
    // The last blocks reach past the image.
    plane.width = std::min(columns, divide_up(width_, plane.step_x) - plane.origin_x);
    plane.height = std::min(rows, divide_up(height_, plane.step_y) - plane.origin_y);
  }
  return with.decode_scan(scan);
}

}  // namespace redline::data
