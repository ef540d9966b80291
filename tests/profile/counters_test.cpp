#include "profile/counters.h"

#include <cmath>

#include <gtest/gtest.h>

#include "profile/hand_made.h"

namespace redline::profile {
namespace {

const std::string kOf = ".avg.pct_of_peak_sustained_elapsed";

CountedKernel kernel(double cycles, double tensor) {
  return {"k", "", {{"gpc__cycles_elapsed.max", cycles}, {"sm__inst_executed_pipe_tensor" + kOf, tensor}}};
}

TEST(CoreUtilisation, WeighsKernelsByTheirCycles) {
  const CoreUtilisation use = core_utilisation({kernel(300, 80), kernel(100, 0)});
  EXPECT_DOUBLE_EQ(use.tensor.value(), 60);
  EXPECT_FALSE(use.fma) << "not counted is not 0";
  EXPECT_FALSE(use.dram_bytes);
  EXPECT_DOUBLE_EQ(use.cycles, 400);
  EXPECT_EQ(use.kernels, 2U);
}

TEST(CoreUtilisation, TellsHowLongTensorCoresComputed) {
  CountedKernel long_instructions = kernel(300, 2);
  long_instructions.values["sm__pipe_tensor_cycles_active" + kOf] = 80;
  EXPECT_DOUBLE_EQ(core_utilisation({long_instructions, kernel(100, 0)}).tensor_active.value(), 60);
  EXPECT_FALSE(core_utilisation({kernel(100, 0)}).tensor_active);
}

TEST(CoreUtilisation, AddsThePartsOfAPipeThatHasNoNameOfItsOwn) {
  CountedKernel hopper{"k",
                       "",
                       {{"sm__cycles_elapsed.max", 100},
                        {"sm__inst_executed_pipe_tensor_op_gmma" + kOf, 70},
                        {"sm__inst_executed_pipe_tensor_op_hmma" + kOf, 5},
                        {"sm__inst_executed_pipe_fma_type_fp16" + kOf, 3}}};
  const CoreUtilisation use = core_utilisation({hopper});
  EXPECT_DOUBLE_EQ(use.tensor.value(), 75);
  EXPECT_DOUBLE_EQ(use.fp16.value(), 3);
}

TEST(CoreUtilisation, LeavesOutWhatSaysNothing) {
  CountedKernel bare{"k", "", {{"gpc__cycles_elapsed.max", 100}}};
  CountedKernel broken = kernel(std::nan(""), 50);
  const CoreUtilisation use = core_utilisation({bare, broken, kernel(100, 50)});
  EXPECT_EQ(use.left_out, 2U);
  EXPECT_DOUBLE_EQ(use.tensor.value(), 50);
  EXPECT_FALSE(core_utilisation({}).tensor);
}

TEST(Counters, AreWrittenInTheLongForm) {
  const HandMade made;
  backend::KernelCounts count;
  count.name = "sm90 \"fprop\"";
  count.op = &made.ops()[0];
  count.values = {123.0, std::nan("")};
  const auto kernels = counted_kernels({count}, {"gpc__cycles_elapsed.max", "sm__cycles_elapsed.max"});
  const std::string csv = counters_csv(kernels, HandMade::subject());
  EXPECT_NE(csv.find("\"Metric Name\",\"Metric Unit\",\"Metric Value\"\n"), std::string::npos);
  EXPECT_NE(
      csv.find(
          "\"0\",\"4321\",\"redline\",\"node1\",\"sm90 \"\"fprop\"\"\",\"\",\"1\",\"\",\"conv layer1.conv\","
          "\"gpc__cycles_elapsed.max\",\"cycle\",\"123.000000\"\n"),
      std::string::npos)
      << csv;
  EXPECT_EQ(csv.find("sm__cycles"), std::string::npos);  // the device did not have it
}

}  // namespace
}  // namespace redline::profile
