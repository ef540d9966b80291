#include "data/images/mix.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.h"

namespace redline::data {
namespace {

// Row i of four is flat, of level 60 i, with label i.
BatchMemory flat_rows(int side) {
  BatchMemory batch(4, side, {});
  for (int row = 0; row < 4; ++row) {
    std::fill_n(batch.image(row), side * side * 3, static_cast<std::uint8_t>(60 * row));
    batch.labels()[row] = row;
  }
  return batch;
}

TEST(Mix, MixupBlendsEachRowWithTheOneBefore) {
  const BatchMemory batch = flat_rows(5);
  std::vector<std::uint8_t> scratch;
  mix_batch({false, 0.75, {}}, 4, 5, batch, scratch);
  const int expected[] = {45, 45, 105, 165};
  for (int row = 0; row < 4; ++row) {
    EXPECT_EQ(batch.other_labels()[row], (row + 3) % 4);
    EXPECT_EQ(batch.label_weights()[row], 0.75F);
    for (int i = 0; i < 5 * 5 * 3; ++i) ASSERT_EQ(batch.image(row)[i], expected[row]) << row;
  }
}

TEST(Mix, CutMixPastesABoxOfTheRowBefore) {
  const BatchMemory batch = flat_rows(6);
  std::vector<std::uint8_t> scratch;
  mix_batch({true, 1 - 6.0 / 36, {1, 2, 3, 2}}, 4, 6, batch, scratch);
  for (int row = 0; row < 4; ++row)
    for (int y = 0; y < 6; ++y)
      for (int x = 0; x < 6; ++x) {
        const bool inside = x >= 1 && x < 4 && y >= 2 && y < 4;
        for (int c = 0; c < 3; ++c)
          ASSERT_EQ(batch.image(row)[(y * 6 + x) * 3 + c], 60 * (inside ? (row + 3) % 4 : row));
      }
  EXPECT_EQ(batch.other_labels()[0], 3);
  EXPECT_NEAR(batch.label_weights()[0], 30.0 / 36, 1e-6);
}

TEST(Mix, RowsWithoutALabelAreNeitherMixedNorMixedIn) {
  const BatchMemory batch = flat_rows(3);
  batch.labels()[1] = -1;
  std::vector<std::uint8_t> scratch;
  mix_batch({false, 0.5, {}}, 4, 3, batch, scratch);
  const int levels[] = {90, 60, 120, 150}, others[] = {3, -1, -1, 2};
  for (int row = 0; row < 4; ++row) {
    EXPECT_EQ(batch.image(row)[0], levels[row]) << row;
    EXPECT_EQ(batch.other_labels()[row], others[row]) << row;
    EXPECT_EQ(batch.label_weights()[row], others[row] < 0 ? 1.0F : 0.5F) << row;
  }
}

TEST(Mix, ABatchOfOneStaysAsItIs) {
  BatchMemory batch(1, 2, {});
  std::fill_n(batch.image(0), 12, std::uint8_t{77});
  std::vector<std::uint8_t> scratch;
  mix_batch({false, 0.3, {}}, 1, 2, batch, scratch);
  EXPECT_EQ(batch.image(0)[11], 77);
  EXPECT_EQ(batch.other_labels()[0], 0);
}

// Beta(a, a) has mean 1/2 and variance 1 / (4 (2a + 1)). Six standard errors; the fourth moment is at most
// that of two points.
TEST(Mix, WeightsAreDrawnFromBeta) {
  for (const double alpha : {0.001, 0.2, 1.0, 4.0}) {
    constexpr int kDraws = 20000;
    double sum = 0, squares = 0;
    Random random(7, static_cast<std::uint64_t>(alpha * 1000));
    for (int i = 0; i < kDraws; ++i) {
      const double weight = draw_mix({alpha, 0}, 224, random).weight;
      ASSERT_TRUE(weight >= 0 && weight <= 1);
      sum += weight;
      squares += weight * weight;
    }
    const double mean = sum / kDraws, variance = squares / kDraws - mean * mean;
    EXPECT_NEAR(mean, 0.5, 6 * 0.5 / std::sqrt(kDraws)) << alpha;
    EXPECT_NEAR(variance, 1 / (4 * (2 * alpha + 1)), 6 * 0.25 / std::sqrt(kDraws)) << alpha;
  }
}

TEST(Mix, ABoxLiesInTheImageAndItsAreaIsTheNeighboursShare) {
  Random random(8);
  double whole = 0, centre = 0;
  int cut_off = 0;
  constexpr int kDraws = 5000;
  for (int i = 0; i < kDraws; ++i) {
    const Mix mix = draw_mix({0, 1.0}, 64, random);
    const Rect& box = mix.box;
    ASSERT_TRUE(mix.cut && box.x >= 0 && box.y >= 0 && box.width >= 0 && box.height >= 0 &&
                box.x + box.width <= 64 && box.y + box.height <= 64);
    EXPECT_DOUBLE_EQ(mix.weight, 1 - box.width * box.height / 4096.0);
    if (box.x > 0 && box.y > 0 && box.x + box.width < 64 && box.y + box.height < 64) {
      EXPECT_EQ(box.width, box.height);
      ++whole;
    } else {
      ++cut_off;
    }
    centre += box.x + box.width / 2.0;
  }
  EXPECT_GT(whole, 500);
  EXPECT_GT(cut_off, 500);
  EXPECT_NEAR(centre / kDraws, 32, 6 * 64 / std::sqrt(12.0 * kDraws));
}

TEST(Mix, BothKindsTakeTurnsEvenly) {
  int cuts = 0;
  for (std::int64_t batch = 0; batch < 2000; ++batch) {
    Random random = batch_random(1, 0, batch, 0);
    cuts += draw_mix({0.2, 1.0}, 32, random).cut;
  }
  EXPECT_NEAR(cuts, 1000, 6 * std::sqrt(2000) / 2);
}

TEST(Mix, EveryBatchEpochAndRankHasDrawsOfItsOwn) {
  std::set<std::uint64_t> seen;
  for (std::int64_t epoch = 0; epoch < 3; ++epoch)
    for (std::int64_t batch = 0; batch < 3; ++batch)
      for (int rank = 0; rank < 3; ++rank) seen.insert(batch_random(1, epoch, batch, rank).next_u64());
  EXPECT_EQ(seen.size(), 27U);
}

TEST(Mix, ImpossibleOptionsAreUsageErrors) {
  EXPECT_NO_THROW(validate(MixOptions{}));
  EXPECT_THROW(validate(MixOptions{-1, 0}), UsageError);
  EXPECT_THROW(validate(MixOptions{0, std::nan("")}), UsageError);
}

}  // namespace
}  // namespace redline::data
