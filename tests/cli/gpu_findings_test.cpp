// What the doctor says about machines that are not this one.
#include "cli/gpu_findings.h"

#include <gtest/gtest.h>

namespace redline::cli {
namespace {

using testing::AssertionFailure;
using testing::AssertionResult;
using testing::AssertionSuccess;

GpuProbe without_driver() {
  GpuProbe probe;
  probe.problem = "no NVIDIA driver (libcuda.so.1 not found)";
  return probe;
}

GpuProbe with_driver() {
  GpuProbe probe;
  probe.has_driver = true;
  probe.driver_version = "580.65.06";
  probe.cuda_version = 13000;
  probe.around.kernel_driver = true;
  return probe;
}

AssertionResult advises(const GpuProbe& probe, const std::string& words) {
  const GpuFindings findings = judge_gpus(probe);
  if (findings.usable) return AssertionFailure() << "found usable";
  const Finding& last = findings.list.back();
  if (last.status != Status::missing) return AssertionFailure() << last.name << " is not missing";
  if (last.advice.find(words) == std::string::npos) return AssertionFailure() << last.advice;
  return AssertionSuccess();
}

TEST(GpuFindings, NoDriver) { EXPECT_TRUE(advises(without_driver(), "install its driver")); }

TEST(GpuFindings, ContainerWithoutGpus) {
  GpuProbe probe = without_driver();
  probe.around.container = true;
  EXPECT_TRUE(advises(probe, "its host has no NVIDIA driver: install its driver there"));
  probe.around.kernel_driver = true;
  EXPECT_TRUE(advises(probe, "its host has a driver: start it with --gpus all (docker)"));
}

TEST(GpuFindings, Wsl) {
  GpuProbe probe = without_driver();
  probe.around.wsl = true;
  EXPECT_TRUE(advises(probe, "driver in Windows"));
  probe.around.wsl_driver = true;
  EXPECT_TRUE(advises(probe, "LD_LIBRARY_PATH=/usr/lib/wsl/lib"));
}

TEST(GpuFindings, DriverOfWindowsTooOld) {
  GpuProbe probe = with_driver();
  probe.around.wsl = true;
  probe.cuda_version = 12080;
  probe.devices.push_back({.name = "RTX", .compute_major = 8, .compute_minor = 9});
  const GpuFindings findings = judge_gpus(probe);
  EXPECT_FALSE(findings.usable);
  EXPECT_EQ(findings.list.front().status, Status::missing);
  EXPECT_NE(findings.list.front().advice.find("update NVIDIA's driver in Windows"), std::string::npos);
}

TEST(GpuFindings, LibraryOfDriverMissing) {
  GpuProbe probe = without_driver();
  probe.around.kernel_driver = true;
  EXPECT_TRUE(advises(probe, "its library is not installed"));
}

TEST(GpuFindings, KernelModuleMissing) {
  GpuProbe probe = with_driver();
  probe.problem = "the NVIDIA driver failed to start";
  probe.around.kernel_driver = false;
  EXPECT_TRUE(advises(probe, "NVIDIA kernel module is not loaded"));
}

TEST(GpuFindings, OneServedGpuIsEnough) {
  GpuProbe probe = with_driver();
  probe.devices.push_back({.name = "V100", .compute_major = 7, .compute_minor = 0});
  EXPECT_FALSE(judge_gpus(probe).usable);
  probe.devices.push_back({.name = "T4", .compute_major = 7, .compute_minor = 5});
  EXPECT_TRUE(judge_gpus(probe).usable);
}

TEST(GpuFindings, TwoCudnns) {
  EXPECT_TRUE(judge_cudnn({}).empty());
  EXPECT_TRUE(judge_cudnn({"/a/libcudnn.so.9"}).empty());
  const std::vector<Finding> findings = judge_cudnn({"/a/libcudnn.so.9", "/b/libcudnn.so.9"});
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].value, "/a/libcudnn.so.9");
  EXPECT_NE(findings[0].advice.find("ignored: /b/libcudnn.so.9"), std::string::npos);
}

}  // namespace
}  // namespace redline::cli
