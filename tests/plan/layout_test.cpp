#include "plan/layout.h"

#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "graph/half.h"

namespace redline::plan {
namespace {

using graph::DType;
using graph::Shape;
using graph::Tensor;
using graph::TensorKind;

std::vector<float> counting(std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  std::iota(values.begin(), values.end(), 1.0F);
  return values;
}

std::vector<float> stored(const Tensor& tensor, Layout layout, const std::vector<float>& values) {
  std::vector<float> memory(static_cast<std::size_t>(stored_elements(tensor.shape, layout)), -1.0F);
  store(tensor, layout, values, reinterpret_cast<std::byte*>(memory.data()));
  return memory;
}

TEST(Layout, ChannelsLastPutsChannelsInnermost) {
  const Tensor x{"x", {1, 2, 1, 3}, DType::f32, TensorKind::activation};
  EXPECT_EQ(stored(x, Layout::plain, counting(6)), (std::vector<float>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(stored(x, Layout::channels_last, counting(6)), (std::vector<float>{1, 4, 2, 5, 3, 6}));
}

TEST(Layout, BlocksArePaddedWithZeros) {
  const Tensor x{"x", {1, 17, 1, 2}, DType::f32, TensorKind::activation};
  const auto memory = stored(x, Layout::blocked16, counting(34));
  ASSERT_EQ(memory.size(), 64U);
  EXPECT_EQ(memory[0], 1.0F);    // channel 0, pixel 0
  EXPECT_EQ(memory[1], 3.0F);    // channel 1, pixel 0
  EXPECT_EQ(memory[16], 2.0F);   // channel 0, pixel 1
  EXPECT_EQ(memory[32], 33.0F);  // channel 16, pixel 0
  for (std::size_t i : {33U, 47U, 49U, 63U}) EXPECT_EQ(memory[i], 0.0F) << i;
}

TEST(Layout, WeightsAreBlockedBothWays) {
  const Tensor w{"w", {17, 20, 1, 1}, DType::f32, TensorKind::parameter};
  const auto memory = stored(w, Layout::weights16, counting(340));
  ASSERT_EQ(memory.size(), 32U * 32U);
  EXPECT_EQ(memory[0], 1.0F);                 // o 0, i 0
  EXPECT_EQ(memory[1], 21.0F);                // o 1, i 0
  EXPECT_EQ(memory[16], 2.0F);                // o 0, i 1
  EXPECT_EQ(memory[256], 17.0F);              // o 0, i 16: the next block of inputs
  EXPECT_EQ(memory[512], 16.0F * 20 + 1.0F);  // o 16, i 0: the next block of outputs
  EXPECT_EQ(memory[513], 0.0F);               // o 17 is padding
}

TEST(Layout, FoldedImagesHaveFourPixelsSideBySide) {
  const Tensor x{"x", {1, 3, 3, 2}, DType::f32, TensorKind::activation};
  const auto memory = stored(x, Layout::folded, counting(18));
  ASSERT_EQ(memory.size(), 5U * 4U * 16U);  // 2 x 1 pairs, two pairs before and one after
  const auto pair = [&](int row, int column) {
    const auto at = memory.begin() + (row * 4 + column) * 16;
    return std::vector<float>(at, at + 16);
  };
  EXPECT_EQ(pair(2, 2), (std::vector<float>{1, 7, 13, 0, 2, 8, 14, 0, 3, 9, 15, 0, 4, 10, 16, 0}));
  EXPECT_EQ(pair(3, 2), (std::vector<float>{5, 11, 17, 0, 6, 12, 18, 0, 0, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(pair(2, 1), std::vector<float>(16, 0.0F));
  EXPECT_EQ(pair(4, 3), std::vector<float>(16, 0.0F));
}

// A 7x7 convolution of stride two is a 4x4 of stride one over the folded image, the sums being the same.
TEST(Layout, FoldedWeightsMeetFoldedPixels) {
  const Tensor x{"x", {1, 3, 9, 11}, DType::f32, TensorKind::activation};
  const Tensor w{"w", {2, 3, 7, 7}, DType::f32, TensorKind::parameter};
  const auto pixels = counting(3 * 9 * 11), weights = counting(2 * 3 * 49);
  const auto folded_x = stored(x, Layout::folded, pixels), folded_w = stored(w, Layout::folded, weights);
  ASSERT_EQ(folded_w.size(), 2U * 256U);
  const auto at = [](int a, int b, int c, int d, int nb, int nc, int nd) {
    return ((a * nb + b) * nc + c) * nd + d;
  };
  for (int o = 0; o < 2; ++o) {
    for (int oh = 0; oh < 5; ++oh) {
      for (int ow = 0; ow < 6; ++ow) {
        double plain = 0, folded = 0;
        for (int c = 0; c < 3; ++c) {
          for (int r = 0; r < 7; ++r) {
            for (int s = 0; s < 7; ++s) {
              const int h = 2 * oh - 3 + r, v = 2 * ow - 3 + s;
              if (h < 0 || h >= 9 || v < 0 || v >= 11) continue;
              plain += double{pixels[static_cast<std::size_t>(at(0, c, h, v, 3, 9, 11))]} *
                       double{weights[static_cast<std::size_t>(at(o, c, r, s, 3, 7, 7))]};
            }
          }
        }
        for (int r = 0; r < 4; ++r) {
          for (int s = 0; s < 4; ++s) {
            const int h = oh + r, v = ow + s;
            for (int k = 0; k < 16; ++k) {
              folded += double{folded_x[static_cast<std::size_t>(at(0, h, v, k, 8, 9, 16))]} *
                        double{folded_w[static_cast<std::size_t>(at(o, r, s, k, 4, 4, 16))]};
            }
          }
        }
        EXPECT_EQ(plain, folded) << o << " " << oh << " " << ow;
      }
    }
  }
}

TEST(Layout, EveryLayoutReadsBackWhatWasWritten) {
  for (const Shape& shape :
       {Shape{3, 17, 5, 7}, Shape{16, 3, 7, 7}, Shape{40, 16, 1, 1}, Shape{5, 33}, Shape{9}}) {
    for (Layout layout : {Layout::plain, Layout::channels_last, Layout::channels_last4, Layout::blocked16,
                          Layout::weights16}) {
      for (DType dtype : {DType::f32, DType::i32}) {
        const Tensor tensor{"t", shape, dtype, TensorKind::activation};
        const auto values = counting(shape.elements());
        std::vector<std::byte> memory(stored_bytes(tensor, layout));
        store(tensor, layout, values, memory.data());
        std::vector<float> back(values.size());
        load(tensor, layout, memory.data(), back);
        EXPECT_EQ(back, values) << shape.text() << " " << name_of(layout);
      }
    }
  }
}

TEST(Half, RoundsToNearestEven) {
  const auto bf16 = [](float v) { return graph::bf16_to_float(graph::float_to_bf16(v)); };
  EXPECT_EQ(bf16(1.0F + 0x1p-8F), 1.0F);
  EXPECT_EQ(bf16(1.0F + 3 * 0x1p-8F), 1.0F + 0x1p-6F);
  EXPECT_EQ(bf16(1.0F + 0x1p-8F + 0x1p-20F), 1.0F + 0x1p-7F);
  EXPECT_EQ(bf16(std::numeric_limits<float>::max()), std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(bf16(std::numeric_limits<float>::quiet_NaN())));
  const auto f16 = [](float v) { return graph::f16_to_float(graph::float_to_f16(v)); };
  EXPECT_EQ(f16(1.0F + 0x1p-11F), 1.0F);
  EXPECT_EQ(f16(1.0F + 3 * 0x1p-11F), 1.0F + 0x1p-9F);
  EXPECT_EQ(f16(65504.0F), 65504.0F);
  EXPECT_EQ(f16(65519.0F), 65504.0F);
  EXPECT_EQ(f16(65520.0F), std::numeric_limits<float>::infinity());
  EXPECT_EQ(f16(0x1p-24F), 0x1p-24F);      // the smallest subnormal
  EXPECT_EQ(f16(0x1p-25F), 0.0F);          // a tie, to even
  EXPECT_EQ(f16(3 * 0x1p-25F), 0x1p-23F);  // a tie, to even
  EXPECT_EQ(f16(-0x1p-15F), -0x1p-15F);
  EXPECT_TRUE(std::isnan(f16(std::numeric_limits<float>::quiet_NaN())));
}

TEST(Half, EveryValueSurvives) {
  for (std::uint32_t bits = 0; bits < 0x10000U; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float f = graph::f16_to_float(half), b = graph::bf16_to_float(half);
    if (!std::isnan(f)) {
      ASSERT_EQ(graph::float_to_f16(f), half);
    }
    if (!std::isnan(b)) {
      ASSERT_EQ(graph::float_to_bf16(b), half);
    }
  }
}

}  // namespace
}  // namespace redline::plan
