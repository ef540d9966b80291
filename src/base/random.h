// Random numbers that are a function of (seed, stream) alone: the same on every platform, compiler and thread
// count. Sample order, augmentation and initial weights come from here, so changing what a generator gives
// for a seed breaks the reproducibility of recorded runs.
//
// The generator is Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011): each
// block of four words is a keyed hash of a counter. Making one costs nothing, so give every independent thing
// its own stream (a sample, a parameter) instead of sharing one. A Random is a value; it is not to be shared
// by threads.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <utility>

namespace redline {

// One Philox4x32-10 block.
constexpr std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                                  std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53u} * counter[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(b),
               static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(a)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

// Mixes values into one stream number, for streams named by more than one thing: mix(epoch, sample).
// A bijection of each argument for the others fixed (SplitMix64's finaliser), so near arguments do not
// collide.
constexpr std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  std::uint64_t z = a + 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  z = (z ^ (z >> 31)) + b;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

class Random {
 public:
  explicit constexpr Random(std::uint64_t seed, std::uint64_t stream = 0) : seed_(seed), stream_(stream) {}

  constexpr std::uint32_t next_u32() {
    if (used_ == block_.size()) refill();
    return block_[used_++];
  }

  // The first word drawn is the low half.
  constexpr std::uint64_t next_u64() {
    const std::uint64_t low = next_u32();
    return low | (std::uint64_t{next_u32()} << 32);
  }

  // In [0, 1), a multiple of 2^-53; exact on every platform.
  constexpr double uniform() { return static_cast<double>(next_u64() >> 11) * 0x1.0p-53; }

  // In [low, high) up to rounding.
  constexpr double uniform(double low, double high) { return low + (high - low) * uniform(); }

  // In [0, n), without bias; n must be positive.
  constexpr std::uint64_t below(std::uint64_t n) {
    // Words below 2^64 mod n are rejected, so the rest divide evenly by n.
    const std::uint64_t threshold = (0 - n) % n;
    for (;;) {
      const std::uint64_t word = next_u64();
      if (word >= threshold) return word % n;
    }
  }

  // Mean 0, standard deviation 1 (Box-Muller). Draws the same words on every platform; the value may differ
  // in its last bits between C libraries, since log, cos and sin are theirs.
  double normal() {
    if (has_spare_) {
      has_spare_ = false;
      return spare_;
    }
    const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform()));
    const double angle = 2.0 * std::numbers::pi * uniform();
    spare_ = radius * std::sin(angle);
    has_spare_ = true;
    return radius * std::cos(angle);
  }

  // Puts the elements of a random-access range in an order where every permutation is equally likely.
  template <typename Range>
  constexpr void shuffle(Range& range) {
    for (std::size_t i = range.size(); i > 1; --i) {
      using std::swap;
      swap(range[i - 1], range[static_cast<std::size_t>(below(i))]);
    }
  }

 private:
  constexpr void refill() {
    block_ = philox4x32({static_cast<std::uint32_t>(counter_), static_cast<std::uint32_t>(counter_ >> 32),
                         static_cast<std::uint32_t>(stream_), static_cast<std::uint32_t>(stream_ >> 32)},
                        {static_cast<std::uint32_t>(seed_), static_cast<std::uint32_t>(seed_ >> 32)});
    ++counter_;
    used_ = 0;
  }

  std::uint64_t seed_;
  std::uint64_t stream_;
  std::uint64_t counter_ = 0;  // of the next block
  std::array<std::uint32_t, 4> block_{};
  std::size_t used_ = 4;  // words of block_ already given
  double spare_ = 0;      // the second normal of a pair
  bool has_spare_ = false;
};

}  // namespace redline
