// The CPU kernels are built once per instruction set; every build that this CPU can run must give the same
// results as the plainest one.
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "backend/cpu/kernels/kernels.h"
#include "base/random.h"
#include "graph/half.h"

namespace redline::backend::cpu {
namespace {

constexpr std::int64_t kPixels = 37, kImages = 3, kLanes = 16;
constexpr std::size_t kElements = kPixels * kImages * kLanes;
constexpr Run kRun{kImages, kPixels, kPixels* kLanes};

std::vector<const KernelTables*> runnable() {
  std::vector<const KernelTables*> tables;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) tables.push_back(&v3::kTables);
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq")) tables.push_back(&v4::kTables);
  return tables;
}

std::vector<float> normals(std::size_t count, std::uint64_t stream) {
  Random random(11, stream);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(random.normal());
  return values;
}

// Activations in the storage type of a table.
template <typename T>
std::vector<T> stored(const std::vector<float>& values) {
  std::vector<T> out;
  for (float value : values) {
    if constexpr (sizeof(T) == 4) {
      out.push_back(value);
    } else {
      out.push_back(graph::float_to_bf16(value));
    }
  }
  return out;
}

float value_of(float value) { return value; }
float value_of(std::uint16_t bits) { return graph::bf16_to_float(bits); }

// Fused multiply-adds round once where the plain build rounds twice.
template <typename T>
void expect_near(const std::vector<T>& actual, const std::vector<T>& expected, float tolerance) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) {
    const float want = value_of(expected[i]);
    ASSERT_NEAR(value_of(actual[i]), want, tolerance * (1.0F + std::abs(want))) << "at " << i;
  }
}

// What the kernels of one table make of the same inputs.
template <typename T>
struct Results {
  std::vector<T> z = std::vector<T>(kElements), masked = z, dy = z;
  std::vector<std::uint16_t> mask = std::vector<std::uint16_t>(kElements / kLanes);
  std::vector<double> sums = std::vector<double>(4 * kLanes);

  explicit Results(const ActivationKernels& kernels) {
    const auto y = stored<T>(normals(kElements, 1)), shortcut = stored<T>(normals(kElements, 2));
    const auto g = stored<T>(normals(kElements, 3));
    const auto scale = normals(kLanes, 4), bias = normals(kLanes, 5), mean = normals(kLanes, 6);
    kernels.stats(kRun, y.data(), mean.data(), sums.data(), sums.data() + kLanes);
    kernels.affine_act(kRun, {y.data(), scale.data(), bias.data(), shortcut.data(), bias.data(), scale.data(),
                              true, z.data(), mask.data(), kPixels});
    Gate gate;
    gate.mask = mask.data();
    gate.mask_stride = kPixels;
    kernels.grad_stats(kRun, {g.data(), shortcut.data(), y.data(), gate, mean.data(), masked.data(),
                              sums.data() + 2 * kLanes, sums.data() + 3 * kLanes});
    kernels.grad_apply(kRun, {masked.data(), y.data(), Gate{scale.data(), bias.data()}, scale.data(),
                              bias.data(), mean.data(), mean.data(), dy.data()});
  }
};

template <typename T>
void compare(const ActivationKernels& actual, const ActivationKernels& expected, float tolerance) {
  const Results<T> a(actual), e(expected);
  EXPECT_EQ(a.mask, e.mask);
  expect_near(a.z, e.z, tolerance);
  expect_near(a.masked, e.masked, tolerance);
  expect_near(a.dy, e.dy, tolerance);
  for (std::size_t i = 0; i < a.sums.size(); ++i)
    EXPECT_NEAR(a.sums[i], e.sums[i], 1e-4 * (1 + std::abs(e.sums[i])));
}

TEST(Kernels, EveryInstructionSetAgrees) {
  if (runnable().empty()) GTEST_SKIP() << "this CPU runs the plainest kernels only";
  for (const KernelTables* tables : runnable()) {
    SCOPED_TRACE(tables->isa);
    compare<float>(tables->f32, v2::kTables.f32, 1e-6F);
    compare<std::uint16_t>(tables->bf16, v2::kTables.bf16, 0x1p-7F);  // one unit in bf16's last place
  }
}

TEST(Kernels, PackedTilesAgree) {
  const auto tile = normals(kLanes * kLanes, 7);
  for (const KernelTables* tables : runnable()) {
    SCOPED_TRACE(tables->isa);
    for (auto member : {&PackKernels::f32_transposed, &PackKernels::bf16, &PackKernels::bf16_transposed}) {
      std::vector<std::uint8_t> actual(tile.size() * 4), expected(tile.size() * 4);
      (tables->pack.*member)(tile.data(), actual.data());
      (v2::kTables.pack.*member)(tile.data(), expected.data());
      EXPECT_EQ(actual, expected);
    }
  }
}

TEST(Kernels, PackedTileHoldsPairsOfRows) {
  const auto tile = normals(kLanes * kLanes, 8);  // [i][o]
  std::vector<std::uint16_t> packed(tile.size());
  v2::kTables.pack.bf16_transposed(tile.data(), packed.data());  // [o/2][i][2]
  for (std::size_t i = 0; i < 16; ++i) {
    for (std::size_t o = 0; o < 16; ++o) {
      EXPECT_EQ(packed[o / 2 * 32 + i * 2 + o % 2], graph::float_to_bf16(tile[i * 16 + o]));
    }
  }
}

}  // namespace
}  // namespace redline::backend::cpu
