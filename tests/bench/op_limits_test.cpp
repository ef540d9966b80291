#include "bench/op_limits.h"

#include <cmath>
#include <map>
#include <utility>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "fake_move.h"

namespace redline::bench {
namespace {

using backend::MemoryGroup;
using backend::MemoryMethod;

constexpr std::size_t kMiB = std::size_t{1} << 20;
const auto kGoOn = [](std::int64_t, std::int64_t) { return true; };

// Copies take 10 us and what their bytes take at 1 GB/s: "slow start" twice the first, "slow" twice the
// second. In chains all of it takes half as long.
class FakeStudy final : public backend::MemoryStudy {
 public:
  const std::vector<MemoryMethod>& methods() const override { return methods_; }
  std::unique_ptr<backend::MemoryMove> prepare(std::size_t method, std::size_t bytes) override {
    ++prepared[{method, bytes}];
    if (bytes > most) throw UnavailableError("no memory");
    const double start = method == 1 ? 20e-6 : 10e-6, rate = method == 2 ? 0.5e9 : 1e9;
    const double faster = method == 1 || method == 2 ? 1 : 100;
    return std::make_unique<FakeMove>((start + 2 * static_cast<double>(bytes) / rate) / faster, wrong);
  }
  std::unique_ptr<backend::MemoryMove> prepare_chain(std::size_t method, std::size_t bytes) override {
    return std::make_unique<FakeMove>(prepare(method, bytes)->run(1) / 2, wrong);
  }

  std::map<std::pair<std::size_t, std::size_t>, int> prepared;  // by method and size
  std::size_t most = 1024 * kMiB, wrong = 0;

 private:
  // Those that are not plain copies of all threads within the memory are by far the fastest.
  std::vector<MemoryMethod> methods_ = {{MemoryGroup::access, "alone", 1, 2, true},
                                        {MemoryGroup::access, "slow start", 2, 2, true},
                                        {MemoryGroup::access, "slow", 2, 2, true},
                                        {MemoryGroup::access, "read", 2, 1, false},
                                        {MemoryGroup::to_device, "pinned", 4, 1, true}};
};

OpTiming op(double bytes, double flops, double seconds, int count = 1) {
  OpTiming timing;
  timing.kind = timing.description = "op";
  timing.bytes = bytes;
  timing.flops = flops;
  timing.seconds = timing.fastest = seconds;
  timing.count = count;
  return timing;
}

constexpr profile::Ceilings kCeilings{1e12, 2e9};

TEST(OpLimits, CopiesMoveWhatTheOpMoves) {
  for (double bytes = 2 * 4096; bytes < 4e9; bytes *= 1.37) {
    const auto array = static_cast<double>(copied_bytes(bytes));
    EXPECT_EQ(std::fmod(array, 4096), 0);
    // Half of a sixteenth of an octave, and half a page.
    EXPECT_LE(std::abs(2 * array / bytes - 1), std::exp2(1.0 / 32) - 1 + 4096 / bytes) << bytes;
  }
  EXPECT_EQ(copied_bytes(1), 4096);
}

TEST(OpLimits, ArithmeticCanDoAtLeastWhatAnOpReached) {
  std::vector<OpTiming> ops = {op(1, 3e9, 1e-3), op(1, 2e9, 1e-3),
                               op(1, 1e9, 1e-6)};  // 3, 2 and 1000 TFLOP/s
  ops[0].seconds = 2e-3;                           // at best 1 ms
  EXPECT_DOUBLE_EQ(at_least_reached(kCeilings, ops).flops, 3e12)
      << "and what is too short to time says nothing";
  EXPECT_DOUBLE_EQ(at_least_reached(kCeilings, ops).bytes, kCeilings.bytes);
  EXPECT_DOUBLE_EQ(at_least_reached({4e12, 2e9}, ops).flops, 4e12);
  EXPECT_EQ(at_least_reached({}, ops).flops, 0) << "unknown stays unknown";
}

TEST(OpLimits, SaysWhereOpsAreFasterThanTheMemory) {
  std::vector<OpTiming> ops = {op(1e9, 0, 0.6)};
  set_ceilings(ops, kCeilings);
  const auto table = [&] { return op_table(ops, {kCeilings, {}}, {}); };
  EXPECT_EQ(table().find("caches"), std::string::npos);
  ops[0].seconds = 0.4;  // 0.5 at the memory's speed
  EXPECT_NE(table().find("roof above 100%: the op's data comes from caches"), std::string::npos) << table();
}

TEST(OpLimits, OpsThatMemoryBoundsHaveTheFastestPlainCopyBesideThem) {
  FakeStudy study;
  const auto large = static_cast<double>(2 * 8 * kMiB);  // 8 MiB are copied
  std::vector<OpTiming> ops = {op(large, 0, 1), op(1.01 * large, 0, 1), op(large, 1e15, 1), op(100, 0, 1)};
  set_ceilings(ops, kCeilings);
  EXPECT_NEAR(ops[0].least_seconds, large / 2e9, 1e-12);
  EXPECT_NEAR(ops[2].least_seconds, 1e3, 1e-9);
  EXPECT_FALSE(ops[2].memory_bound);
  const auto copies = time_copies(ops, study, 3, /*in_step=*/false, kGoOn);

  EXPECT_NEAR(ops[0].copy_seconds, 20e-6 + large / 1e9, 1e-9);
  EXPECT_NEAR(ops[1].copy_seconds, 1.01 * (20e-6 + large / 1e9), 1e-9);
  EXPECT_EQ(ops[2].copy_seconds, 0);
  EXPECT_NEAR(ops[3].copy_seconds, 0.97 * (10e-6 + 2 * 4096 / 0.5e9), 1e-9);  // a page at least
  ASSERT_EQ(copies.size(), 4);                                                // two sizes, two methods
  EXPECT_EQ(study.prepared.size(), 4);
  for (const auto& [what, times] : study.prepared) EXPECT_EQ(times, 1) << what.second;
  EXPECT_EQ(copies[0].seconds.size(), 3);

  const double alone = ops[0].copy_seconds;
  time_copies(ops, study, 3, /*in_step=*/true, kGoOn);
  EXPECT_NEAR(ops[0].copy_seconds, alone / 2, 1e-9);
}

TEST(OpLimits, WhatCannotBeCopiedStaysWithout) {
  FakeStudy study;
  study.most = kMiB;
  std::vector<OpTiming> ops = {op(64.0 * kMiB, 0, 1), op(2.0 * kMiB, 0, 1), op(16.0 * kMiB, 0, 1)};
  set_ceilings(ops, kCeilings);
  const auto copies = time_copies(ops, study, 1, false, kGoOn);
  EXPECT_EQ(ops[0].copy_seconds, 0);
  EXPECT_GT(ops[1].copy_seconds, 0);
  EXPECT_EQ(ops[2].copy_seconds, 0);
  ASSERT_EQ(copies.size(), 4);  // the largest was not tried
  EXPECT_EQ(copies.back().refusal, "no memory");

  study.most = 1024 * kMiB;
  ops[1].copy_seconds = 0;
  EXPECT_EQ(time_copies(ops, study, 1, false, [](auto, auto) { return false; }).size(), 2);
  EXPECT_GT(ops[1].copy_seconds, 0);
  EXPECT_EQ(ops[0].copy_seconds, 0);
  study.wrong = 1;
  EXPECT_THROW(time_copies(ops, study, 1, false, kGoOn), InternalError);
}

TEST(OpLimits, TheTableAndItsSumsTellHowNearOpsAre) {
  std::vector<OpTiming> ops = {op(2e6, 0, 2e-3, 2), op(1e3, 3e9, 4e-3), op(1e6, 0, 1e-3)};
  set_ceilings(ops, kCeilings);
  ops[0].copy_seconds = 1.82e-3;
  ops[2].copy_seconds = 1.5e-3;
  OpBenchOptions options;
  options.plan.model.batch = 90;
  const OpLimits limits{kCeilings, {}};
  EXPECT_EQ(op_table(ops, limits, options),
            "       ms count   ms/step  share  GFLOP/s    GB/s  roof of copy  op\n"
            "    2.000     2      4.00  44.4%        -     1.0   50%     91%  op\n"
            "    4.000     1      4.00  44.4%    750.0     0.0   75%       -  op\n"
            "    1.000     1      1.00  11.1%        -     1.0   50%    150%  op\n"
            "3 distinct ops, 9.00 ms a step, 10000.0 images/s\n"
            "ceilings measured: 1 TFLOP/s, 2 GB/s\n"
            "memory bounds 3 ops, 5.00 ms a step; plain copies of as many bytes take 5.14 ms, 103%\n");
  const nlohmann::ordered_json json = op_json(ops, limits);
  EXPECT_EQ(json["ops"][0]["bound"], "memory");
  EXPECT_NEAR(json["ops"][0]["of_copy"].get<double>(), 0.91, 1e-12);
  EXPECT_EQ(json["ops"][1]["bound"], "compute");
  EXPECT_FALSE(json["ops"][1].contains("of_copy"));
  EXPECT_FALSE(json.contains("copies"));
}

}  // namespace
}  // namespace redline::bench
