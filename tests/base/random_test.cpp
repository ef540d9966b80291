#include "base/random.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <set>
#include <vector>

#include <gtest/gtest.h>

namespace redline {
namespace {

using Block = std::array<std::uint32_t, 4>;

// The known answers published with Philox by its authors.
TEST(Philox, GivesThePublishedAnswers) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}), (Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}),
            (Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

// Recorded runs depend on these values: a change here is a break, not a new expectation.
TEST(Random, NeverChangesWhatASeedGives) {
  Random random(1234, 56);
  const Block first = philox4x32({0, 0, 56, 0}, {1234, 0});
  for (std::uint32_t word : first) EXPECT_EQ(random.next_u32(), word);
  const Block second = philox4x32({1, 0, 56, 0}, {1234, 0});
  EXPECT_EQ(random.next_u64(), second[0] | (std::uint64_t{second[1]} << 32));

  std::vector<int> order(8);
  std::iota(order.begin(), order.end(), 0);
  Random(7).shuffle(order);
  EXPECT_EQ(order, (std::vector<int>{1, 4, 6, 0, 2, 3, 7, 5}));
}

TEST(Random, SeedsAndStreamsAreIndependent) {
  std::set<std::uint64_t> words;
  for (std::uint64_t seed : {0ull, 1ull, 1ull << 32}) {
    for (std::uint64_t stream : {0ull, 1ull, 1ull << 32}) words.insert(Random(seed, stream).next_u64());
  }
  EXPECT_EQ(words.size(), 9u);
}

TEST(Random, UniformStaysInRangeAndHasItsMoments) {
  Random random(3);
  const int n = 100'000;
  double sum = 0, squares = 0;
  for (int i = 0; i < n; ++i) {
    const double x = random.uniform();
    ASSERT_GE(x, 0);
    ASSERT_LT(x, 1);
    sum += x;
    squares += x * x;
  }
  // Five standard errors: sqrt(1/12/n) for the mean, sqrt(4/45/n) for the second moment.
  EXPECT_NEAR(sum / n, 0.5, 5 * 0.000913);
  EXPECT_NEAR(squares / n, 1.0 / 3, 5 * 0.000943);
}

TEST(Random, NormalHasItsMoments) {
  Random random(4);
  const int n = 100'000;
  double sum = 0, squares = 0, fourth = 0;
  for (int i = 0; i < n; ++i) {
    const double x = random.normal();
    sum += x;
    squares += x * x;
    fourth += x * x * x * x;
  }
  // Five standard errors: sqrt(1/n), sqrt(2/n), sqrt(96/n).
  EXPECT_NEAR(sum / n, 0, 5 * 0.00316);
  EXPECT_NEAR(squares / n, 1, 5 * 0.00447);
  EXPECT_NEAR(fourth / n, 3, 5 * 0.031);
}

TEST(Random, BelowIsUnbiasedAndInRange) {
  Random random(5);
  std::array<int, 7> counts{};
  const int n = 70'000;
  for (int i = 0; i < n; ++i) ++counts.at(random.below(7));
  // Five standard deviations of a binomial count: 5 * sqrt(70000 * 1/7 * 6/7) = 463.
  for (int count : counts) EXPECT_NEAR(count, 10'000, 463);
  EXPECT_EQ(random.below(1), 0u);
  // For n just over half of the range, taking word % n would put 2/3 of the draws in the lower half of it.
  const std::uint64_t large = (std::uint64_t{1} << 63) + (std::uint64_t{1} << 62);
  int low = 0;
  for (int i = 0; i < 10'000; ++i) low += random.below(large) < large / 2;
  EXPECT_NEAR(low, 5'000, 250);
}

TEST(Random, ShuffleReachesEveryPermutationEvenly) {
  std::array<int, 6> counts{};
  for (std::uint64_t stream = 0; stream < 12'000; ++stream) {
    std::array<int, 3> order{0, 1, 2};
    Random(6, stream).shuffle(order);
    const int rank = order[0] * 2 + (order[1] > order[2]);
    ++counts.at(static_cast<std::size_t>(rank));
  }
  // Five standard deviations: 5 * sqrt(12000 * 1/6 * 5/6) = 204.
  for (int count : counts) EXPECT_NEAR(count, 2'000, 204);
}

TEST(Random, MixSeparatesNearArguments) {
  std::set<std::uint64_t> seen;
  for (std::uint64_t a = 0; a < 100; ++a) {
    for (std::uint64_t b = 0; b < 100; ++b) seen.insert(mix(a, b));
  }
  EXPECT_EQ(seen.size(), 10'000u);
}

}  // namespace
}  // namespace redline
