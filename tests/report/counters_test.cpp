#include "report/counters.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace redline::report {
namespace {

constexpr const char* kLong =
    "==PROF== Connected to process 17\n"
    "epoch 1, step 1\n"
    "\"ID\",\"Process ID\",\"Process Name\",\"Host Name\",\"Kernel Name\",\"Kernel "
    "Time\",\"Context\",\"Stream\","
    "\"Section Name\",\"Metric Name\",\"Metric Unit\",\"Metric Value\"\n"
    "\"0\",\"17\",\"python\",\"n\",\"gemm, wide\",\"t\",\"1\",\"7\",\"Command line profiler metrics\","
    "\"gpc__cycles_elapsed.max\",\"cycle\",\"1,000\"\n"
    "\"0\",\"17\",\"python\",\"n\",\"gemm, wide\",\"t\",\"1\",\"7\",\"Command line profiler metrics\","
    "\"sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_elapsed\",\"%\",\"80.50\"\n"
    "\"0\",\"17\",\"python\",\"n\",\"gemm, wide\",\"t\",\"1\",\"7\",\"Command line profiler metrics\","
    "\"dram__bytes_read.sum\",\"Mbyte\",\"2.5\"\n"
    "\"1\",\"17\",\"python\",\"n\",\"copy\",\"t\",\"1\",\"7\",\"Command line profiler metrics\","
    "\"gpc__cycles_elapsed.max\",\"cycle\",\"1,000\"\n"
    "\"1\",\"17\",\"python\",\"n\",\"copy\",\"t\",\"1\",\"7\",\"Command line profiler metrics\","
    "\"sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_elapsed\",\"%\",\"0\"\n";

TEST(ReadCounters, TakesTheLongForm) {
  const auto kernels = parse_counters(kLong, "t.csv");
  ASSERT_EQ(kernels.size(), 2U);
  EXPECT_EQ(kernels[0].name, "gemm, wide");
  EXPECT_DOUBLE_EQ(kernels[0].values.at("dram__bytes_read.sum"), 2.5e6);
  EXPECT_DOUBLE_EQ(profile::core_utilisation(kernels).tensor.value(), 40.25);
}

TEST(ReadCounters, TakesTheWideForm) {
  const auto kernels = parse_counters(
      "\"ID\",\"Kernel "
      "Name\",\"gpc__cycles_elapsed.max\",\"sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_elapsed\"\n"
      "\"\",\"\",\"cycle\",\"%\"\n"
      "\"0\",\"softmax\",\"200\",\"12\"\n"
      "\"1\",\"none\",\"200\",\"n/a\"\n",
      "t.csv");
  ASSERT_EQ(kernels.size(), 2U);
  const auto use = profile::core_utilisation(kernels);
  EXPECT_DOUBLE_EQ(use.sfu.value(), 12);
  EXPECT_EQ(use.left_out, 1U);
}

TEST(ReadCounters, RefusesOtherTables) {
  EXPECT_THROW(parse_counters("", "t"), DataError);
  EXPECT_THROW(parse_counters("a,b\n1,2\n", "t"), DataError);
  EXPECT_THROW(parse_counters("ID,Name\n1,2\n", "t"), DataError);
  EXPECT_THROW(parse_counters("ID,Kernel Name,Metric Name\n1,k,m\n", "t"), DataError);
  EXPECT_THROW(parse_counters("ID,Kernel Name,a__b\n1,k,many\n", "t"), DataError);
}

}  // namespace
}  // namespace redline::report
