#include "base/machine.h"

#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

#include "temporary_folder.h"

namespace redline {
namespace {

constexpr std::uint64_t kGiB = 1ull << 30;

// A made-up machine: two processors, 32 GiB of which 20 are free.
class FakeMachine {
 public:
  FakeMachine() {
    put("proc/cpuinfo",
        "processor\t: 0\nmodel name\t: Example CPU 9000\nflags\t\t: fpu avx avx2 avx512f avx512_bf16\n\n"
        "processor\t: 1\nmodel name\t: Example CPU 9000\nflags\t\t: fpu avx avx2 avx512f avx512_bf16\n");
    put("proc/meminfo", "MemTotal:       33554432 kB\nMemFree: 1024 kB\nMemAvailable:   20971520 kB\n");
    put("etc/os-release", "NAME=\"Example\"\nPRETTY_NAME=\"Example Linux 1 (first)\"\n");
  }
  void put(const std::string& name, const std::string& text) {
    std::filesystem::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name) << text;
  }
  Machine inspect() const { return inspect_machine(root_.path()); }

 private:
  TemporaryFolder root_;
};

TEST(Machine, ReadsProcessorMemoryAndSystem) {
  const Machine machine = FakeMachine().inspect();
  EXPECT_EQ(machine.cpu, "Example CPU 9000");
  EXPECT_EQ(machine.os, "Example Linux 1 (first)");
  EXPECT_EQ(describe(machine.features), "avx2 avx512f avx512_bf16");
  EXPECT_EQ(machine.memory_total, 32 * kGiB);
  EXPECT_EQ(machine.memory_available, 20 * kGiB);
  EXPECT_FALSE(machine.memory_limited);
}

TEST(Machine, ObeysTheTightestCgroupOfVersion2) {
  FakeMachine fake;
  fake.put("proc/self/cgroup", "0::/jobs/one\n");
  fake.put("sys/fs/cgroup/jobs/one/cpu.max", "max 100000\n");
  fake.put("sys/fs/cgroup/jobs/cpu.max", "50000 100000\n");
  fake.put("sys/fs/cgroup/jobs/one/memory.max", "max\n");
  fake.put("sys/fs/cgroup/jobs/memory.max", std::to_string(8 * kGiB) + "\n");
  fake.put("sys/fs/cgroup/jobs/memory.current", std::to_string(5 * kGiB) + "\n");
  fake.put("sys/fs/cgroup/jobs/memory.stat", "anon 1\nfile " + std::to_string(2 * kGiB) + "\n");
  const Machine machine = fake.inspect();
  EXPECT_EQ(machine.cores_allowed, 1);
  EXPECT_EQ(machine.memory_total, 8 * kGiB);
  EXPECT_EQ(machine.memory_available, 5 * kGiB);
  EXPECT_TRUE(machine.memory_limited);
}

TEST(Machine, ObeysCgroupsOfVersion1SeenFromInsideAContainer) {
  FakeMachine fake;
  fake.put("proc/self/cgroup", "5:cpu,cpuacct:/docker/abc\n4:memory:/docker/abc\n0::/docker/abc\n");
  fake.put("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "100000\n");
  fake.put("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  fake.put("sys/fs/cgroup/memory/memory.limit_in_bytes", std::to_string(4 * kGiB) + "\n");
  fake.put("sys/fs/cgroup/memory/memory.usage_in_bytes", std::to_string(1 * kGiB) + "\n");
  const Machine machine = fake.inspect();
  EXPECT_EQ(machine.cores_allowed, 1);
  EXPECT_EQ(machine.memory_total, 4 * kGiB);
  EXPECT_EQ(machine.memory_available, 3 * kGiB);
}

TEST(Machine, TakesNoQuotaForWhatItIs) {
  FakeMachine fake;
  fake.put("proc/self/cgroup", "5:cpu,cpuacct:/\n4:memory:/\n");
  fake.put("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  fake.put("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  fake.put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  const Machine machine = fake.inspect();
  EXPECT_EQ(machine.cores_allowed, inspect_machine().cores_allowed);
  EXPECT_FALSE(machine.memory_limited);
}

TEST(Machine, SurvivesAnEmptyRoot) {
  TemporaryFolder root;
  const Machine machine = inspect_machine(root.path());
  EXPECT_EQ(machine.cpu, "");
  EXPECT_EQ(machine.memory_total, 0u);
  EXPECT_GE(machine.cores_allowed, 1);
  EXPECT_EQ(describe(machine.features), "none of note");
}

TEST(Machine, KnowsThisOne) {
  const Machine machine = inspect_machine();
  EXPECT_GE(machine.cores_allowed, 1);
  EXPECT_LE(machine.cores_allowed, machine.cores_total);
  EXPECT_GT(machine.memory_total, 0u);
  EXPECT_LE(machine.memory_available, machine.memory_total);
  EXPECT_FALSE(machine.hostname.empty());
  EXPECT_TRUE(machine.kernel.starts_with("Linux "));
}

}  // namespace
}  // namespace redline
