// Conversions of many values at a time against those of one, whatever instructions this CPU has.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "graph/half.h"
#include "graph/half_arrays.h"

namespace redline::graph {
namespace {

struct Scalar {
  DType type;
  float (*load)(std::uint16_t);
  std::uint16_t (*store)(float);
};
const Scalar kTypes[] = {{DType::f16, f16_to_float, float_to_f16},
                         {DType::bf16, bf16_to_float, float_to_bf16}};

bool same(float a, float b) {
  return (std::isnan(a) && std::isnan(b)) ||
         std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}

// Every 16-bit number, and one more so that the last few are fewer than a vector.
std::vector<std::uint16_t> all_halves() {
  std::vector<std::uint16_t> all;
  for (std::uint32_t bits = 0; bits <= 0x10000; ++bits) all.push_back(static_cast<std::uint16_t>(bits));
  return all;
}

TEST(Halves, EveryNumberIsReadAsTheScalarFormDoes) {
  const std::vector<std::uint16_t> all = all_halves();
  for (const Scalar& scalar : kTypes) {
    std::vector<float> values(all.size());
    from_halves(scalar.type, all.data(), values.data(), all.size());
    for (std::size_t i = 0; i < all.size(); ++i) ASSERT_TRUE(same(values[i], scalar.load(all[i]))) << all[i];
  }
}

TEST(Halves, NumbersAndTheirMiddlesAreRoundedAsTheScalarFormDoes) {
  for (const Scalar& scalar : kTypes) {
    // Each number, and the floats around the middle to its neighbour.
    std::vector<float> values;
    for (const std::uint16_t bits : all_halves()) {
      const float value = scalar.load(bits);
      const float middle = value + (scalar.load(static_cast<std::uint16_t>(bits + 1)) - value) / 2;
      values.insert(values.end(),
                    {value, std::nextafter(middle, -1e38F), middle, std::nextafter(middle, 1e38F)});
    }
    std::vector<std::uint16_t> halves(values.size());
    to_halves(scalar.type, values.data(), halves.data(), values.size());
    for (std::size_t i = 0; i < values.size(); ++i)
      ASSERT_TRUE(same(scalar.load(halves[i]), scalar.load(scalar.store(values[i])))) << values[i];
  }
}

TEST(Halves, SumsAreRoundedOnce) {
  const std::vector<std::uint16_t> a = all_halves();
  for (const Scalar& scalar : kTypes) {
    std::vector<std::uint16_t> b(a.size()), sums(a.size());
    for (std::size_t i = 0; i < a.size(); ++i) b[i] = static_cast<std::uint16_t>(a[i] * 40503U);
    add_halves(scalar.type, a.data(), b.data(), sums.data(), a.size());
    for (std::size_t i = 0; i < a.size(); ++i)
      ASSERT_TRUE(
          same(scalar.load(sums[i]), scalar.load(scalar.store(scalar.load(a[i]) + scalar.load(b[i])))))
          << a[i] << " " << b[i];
  }
  EXPECT_THROW(add_halves(DType::f32, a.data(), a.data(), nullptr, 0), InternalError);
}

}  // namespace
}  // namespace redline::graph
