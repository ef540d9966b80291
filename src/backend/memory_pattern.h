// The data of memory benchmarks: 32-bit words that encode their own position, so that a misplaced word is
// detected, and the orders in which they are read. Kernels of every backend use these.
#pragma once

#include <cstdint>

namespace redline::backend {

inline constexpr int kMemoryStrides[] = {2, 4, 8, 16, 32};

// The value of word i of a source.
constexpr std::uint32_t memory_word(std::uint64_t i) {
  std::uint64_t z = (i + 1) * 0x9E3779B97F4A7C15u;
  z ^= z >> 32;
  return static_cast<std::uint32_t>(z * 0xD6E8FEB9u >> 16);
}

// The order in which neighbours are `stride` apart: word i of the result is word strided(i) of the source.
// `words` is a multiple of the stride, so that each is taken once.
constexpr std::uint64_t strided(std::uint64_t i, std::uint64_t words, std::uint64_t stride) {
  const std::uint64_t column = words / stride;
  return i % column * stride + i / column;
}

// A random order: a permutation of [0, words) without a table. It applies a bijection of the next power of
// two, and applies it again while the result is outside the range.
class Scatter {
 public:
  constexpr explicit Scatter(std::uint64_t words) : words_(words) {
    while ((std::uint64_t{1} << bits_) < words) ++bits_;
    mask_ = (std::uint64_t{1} << bits_) - 1;
    half_ = bits_ > 1 ? bits_ / 2 : 1;
  }
  constexpr std::uint64_t operator()(std::uint64_t i) const {
    do {
      i ^= i >> half_;
      i = i * 0x9E3779B97F4A7C15u & mask_;
      i ^= i >> half_;
      i = i * 0xBF58476D1CE4E5B9u & mask_;
      i ^= i >> half_;
    } while (i >= words_);
    return i;
  }

 private:
  std::uint64_t words_, mask_ = 0;
  int bits_ = 0, half_ = 1;
};

}  // namespace redline::backend
