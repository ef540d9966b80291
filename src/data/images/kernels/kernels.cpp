// Entropy decoding of baseline JPEGs.
#include <algorithm>
#include <bit>
#include <cstring>

#include "data/images/kernels/exact_resize.h"
#include "data/images/kernels/idct.h"
#include "data/images/kernels/kernels.h"
#include "data/images/kernels/resize.h"

namespace redline::data::REDLINE_ISA {
namespace {

constexpr int kMaxLevel = 4096;  // of a DC coefficient; an image of 8 bits has at most 2047

// The next bits are the highest of `word`; at least `count` of them are there.
struct Bits {
  const std::uint8_t* at = nullptr;
  const std::uint8_t* limit = nullptr;  // at beyond this means that the data is at its end
  std::uint64_t word = 0;
  int count = 0;

  // At least 56 bits after it.
  REDLINE_INLINE void refill() {
    std::uint64_t next;
    std::memcpy(&next, at, sizeof(next));
    if constexpr (std::endian::native == std::endian::little) next = __builtin_bswap64(next);
    word |= next >> count;
    at += (63 - count) >> 3;
    count |= 56;
  }
  REDLINE_INLINE std::uint32_t peek(int bits) const {
    return static_cast<std::uint32_t>(word >> (64 - bits));
  }
  REDLINE_INLINE void consume(int bits) {
    word <<= bits & 63;  // the mask costs nothing, and tells the compiler so
    count -= bits;
  }
  // The value that the next `length` (at least 1) bits end with. Off the chain of lookups, and without a
  // branch, which nobody could predict.
  REDLINE_INLINE int value(int length, int mask) const {
    return jpeg_value(static_cast<int>(word >> (-length & 63)) & mask, mask);
  }
};

// As an entry of the lookup, a code of any length; 0: there is no such code.
template <bool kAc>
REDLINE_INLINE std::uint32_t find_code(const JpegCodes& codes, const Bits& bits) {
  if (const std::uint32_t entry = codes.lookup[bits.peek(kJpegLookup)]) return entry;
  const std::uint32_t bits16 = bits.peek(16);
  for (int length = kJpegLookup + 1; length <= 16; ++length) {
    const auto l = static_cast<std::size_t>(length);
    if (codes.counts[l - 1] == 0 || bits16 >= codes.limit[l]) continue;
    const std::int32_t at = codes.offset[l] + static_cast<std::int32_t>(bits16 >> (16 - length));
    return at >= 0 && static_cast<std::size_t>(at) < codes.symbols.size()
               ? jpeg_entry(codes.symbols[static_cast<std::size_t>(at)], kAc, length)
               : 0;
  }
  return 0;
}

constexpr std::size_t kMaxBlocks = 6;  // of an MCU: four of brightness, one of each colour

struct Block {
  alignas(32) std::array<std::int16_t, 64 + 16> values;  // row by row; [64] takes what has no place
  bool flat;                                             // it has no coefficient but the first

  // A loop of vectors: memset of so little is a call, or worse.
  REDLINE_INLINE void clear() {
    for (std::size_t i = 0; i < 64; i += 16) {
      const Lanes zeros{};
      std::memcpy(values.data() + i, &zeros, sizeof(zeros));
    }
  }
};

// Decodes one scan, MCU by MCU.
class ScanReader {
 public:
  explicit ScanReader(const JpegScan& scan) : scan_(scan) {}

  bool run() {
    const Rect& region = scan_.region;
    const int right = region.x + region.width, bottom = region.y + region.height;
    for (int row = 0; row < bottom; ++row) {
      const int first = row * scan_.across;
      if (row < region.y) {
        if (!read_mcus<false>(first, scan_.across, 0)) return false;
        continue;
      }
      const int rest = row + 1 < bottom ? scan_.across - right : 0;
      if (!read_mcus<false>(first, region.x, 0) ||
          !read_mcus<true>(first + region.x, region.width, row - region.y) ||
          !read_mcus<false>(first + right, rest, 0))
        return false;
    }
    return within(interval_);
  }

 private:
  // Whether no more was read than the interval has.
  bool within(std::size_t interval) const {
    const std::ptrdiff_t used = (bits_.at - scan_.data) * 8 - bits_.count;
    return used <= static_cast<std::ptrdiff_t>((*scan_.intervals)[interval + 1]) * 8;
  }

  bool start_interval(std::size_t interval) {
    if (interval > 0 && !within(interval - 1)) return false;
    if (interval + 1 >= scan_.intervals->size()) return false;
    interval_ = interval;
    bits_ = {scan_.data + (*scan_.intervals)[interval], scan_.data + (*scan_.intervals)[interval + 1] + 8, 0,
             0};
    level_ = {};
    return true;
  }

  // Reads a block's coefficients, or passes over them.
  template <bool kKeep>
  REDLINE_INLINE bool read_block(Bits& bits, const JpegCodes& dc, const JpegCodes& ac, int& level,
                                 Block& block) {
    if (kKeep) block.clear();
    bits.refill();
    const std::uint32_t first = find_code<false>(dc, bits);
    if (__builtin_expect(first == 0, 0)) return false;
    const int length = static_cast<int>(first & 0xff);
    level += bits.value(length, static_cast<int>(first >> 16));
    bits.consume(length);
    if (__builtin_expect(level < -kMaxLevel || level > kMaxLevel, 0)) return false;

    // 56 bits are there. A DC code with its value takes up to 27, an AC code up to 26, and what is found in
    // one lookup up to 20.
    std::uint32_t place = 1;
    if (!read_coefficients<kKeep>(bits, ac, place, block)) return false;
    while (place < 64) {
      bits.refill();
      if (!read_coefficients<kKeep>(bits, ac, place, block)) return false;
      if (place >= 64) break;
      if (!read_coefficients<kKeep>(bits, ac, place, block)) return false;
    }
    // 64: the last place was filled. Beyond kJpegEndRun: an end of block. Between them a run left the block.
    if (place > 64 && place <= kJpegEndRun) return false;
    if (kKeep) {
      block.values[0] = static_cast<std::int16_t>(level);
      block.flat = place == 1 + kJpegEndRun + 1;
    }
    return bits.at <= bits.limit;
  }

  // The coefficients that one lookup finds, or the next whatever its length; false when there is no such
  // code.
  template <bool kKeep>
  REDLINE_INLINE bool read_coefficients(Bits& bits, const JpegCodes& ac, std::uint32_t& place, Block& block) {
    const std::uint32_t index = bits.peek(kJpegLookup);
    if constexpr (kKeep) {
      const std::uint64_t entry = ac.pairs[index];
      const std::uint32_t last = place + (entry >> 32 & 0xff);
      if (__builtin_expect(last >= 64, 0)) return read_one<kKeep>(bits, ac, place, block);
      const int value = bits.value(static_cast<int>(entry & 63), static_cast<int>(entry >> 48));
      block.values[kJpegPlaces[place + (entry >> 8 & 0xff)]] = static_cast<std::int16_t>(entry >> 16);
      block.values[kJpegPlaces[last]] = static_cast<std::int16_t>(value);
      place += entry >> 40 & 0xff;
      bits.consume(static_cast<int>(entry & 63));
    } else {
      const std::uint32_t entry = ac.skips[index];
      if (__builtin_expect(place + (entry >> 8 & 0xff) >= 64, 0))
        return read_one<kKeep>(bits, ac, place, block);
      place += entry >> 16;
      bits.consume(static_cast<int>(entry & 63));
    }
    return true;
  }

  template <bool kKeep>
  REDLINE_INLINE bool read_one(Bits& bits, const JpegCodes& ac, std::uint32_t& place, Block& block) {
    const std::uint32_t entry = find_code<true>(ac, bits);
    if (entry == 0) return false;
    const int length = static_cast<int>(entry & 0xff);
    place += entry >> 8 & 0xff;
    if (kKeep)
      block.values[kJpegPlaces[place]] =
          static_cast<std::int16_t>(bits.value(length, static_cast<int>(entry >> 16)));
    bits.consume(length);
    ++place;
    return true;
  }

  // MCUs [first, first + count) of the scan; those that are kept go to this row of the region, from its left.
  template <bool kKeep>
  bool read_mcus(int first, int count, int row) {
    Bits bits = bits_;  // a copy that the compiler can keep in registers
    for (int mcu = first; mcu < first + count; ++mcu) {
      if (mcu == 0 || (scan_.restart != 0 && mcu % scan_.restart == 0)) {
        bits_ = bits;
        if (!start_interval(scan_.restart == 0 ? 0 : static_cast<std::size_t>(mcu / scan_.restart)))
          return false;
        bits = bits_;
      }
      auto& now = blocks_[static_cast<std::size_t>(mcu) % 2];
      const auto& before = blocks_[static_cast<std::size_t>(mcu + 1) % 2];
      std::size_t block = 0;
      for (std::size_t i = 0; i < static_cast<std::size_t>(scan_.count); ++i) {
        const JpegScan::Component& c = scan_.components[i];
        for (int part = 0; part < c.h * c.v; ++part, ++block) {
          if (!read_block<kKeep>(bits, *c.dc, *c.ac, level_[i], now[block])) return false;
          // Of the MCU before: reading is a chain in which each code waits for the one before it, and this
          // work fits between. To load as a vector what was just stored value by value would stall, too.
          if (kKeep && mcu > first) write_block(before[block], c, part, mcu - first - 1, row);
        }
      }
    }
    bits_ = bits;
    if (!kKeep || count == 0) return true;
    const Block* block = blocks_[static_cast<std::size_t>(first + count - 1) % 2].data();
    for (int i = 0; i < scan_.count; ++i) {
      const JpegScan::Component& c = scan_.components[static_cast<std::size_t>(i)];
      for (int part = 0; part < c.h * c.v; ++part) write_block(*block++, c, part, count - 1, row);
    }
    return true;
  }

  // The pixels of one of a component's blocks, of the MCU in this column and row of the region.
  REDLINE_INLINE void write_block(const Block& block, const JpegScan::Component& c, int part, int column,
                                  int row) {
    // h is 1 or 2 and shrink a power of two: no division.
    const int side = 8 >> std::countr_zero(static_cast<unsigned>(c.shrink));
    const int x = (column * c.h + (part & (c.h - 1))) * side, y = (row * c.v + (part >> (c.h - 1))) * side;
    std::uint8_t* to = c.pixels + y * c.stride + x;
    if (block.flat) {
      const int value = std::clamp(((block.values[0] * c.steps[0] + 4) >> 3) + 128, 0, 255);
      for (int line = 0; line < side; ++line)
        std::memset(to + line * c.stride, value, static_cast<std::size_t>(side));
    } else {
      idct(c.shrink, block.values.data(), c.steps, to, c.stride);
    }
  }

  const JpegScan& scan_;
  Bits bits_;
  std::size_t interval_ = 0;
  std::array<int, 3> level_{};                           // DC prediction
  std::array<std::array<Block, kMaxBlocks>, 2> blocks_;  // of the MCU that is read, and of the one before
};

bool decode_scan(const JpegScan& scan) { return ScanReader(scan).run(); }

}  // namespace

const Kernels kKernels{plan_axis,     blend_rows,   blend_pixels, blend_values,
                       merge_colours, exact_pixels, exact_rows,   decode_scan};

}  // namespace redline::data::REDLINE_ISA
