#include "base/topology.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "temporary_folder.h"

namespace redline {
namespace {

using Cores = std::vector<std::vector<int>>;

// Two packages with a memory node and two cores each, two processors a core, numbered as Linux does on such
// machines: first the first processor of every core.
void make_two_sockets(const TemporaryFolder& system) {
  for (int processor = 0; processor < 8; ++processor) {
    const auto folder = system / ("devices/system/cpu/cpu" + std::to_string(processor));
    const int package = processor % 4 / 2;
    std::filesystem::create_directories(folder / "topology");
    std::filesystem::create_directories(folder / ("node" + std::to_string(package)));
    std::ofstream(folder / "topology/core_id") << processor % 2 << "\n";
    std::ofstream(folder / "topology/physical_package_id") << package << "\n";
  }
}

TEST(Topology, ProcessorsOfACoreAreTogetherAndCoresOfANodeBesideEachOther) {
  const TemporaryFolder system;
  make_two_sockets(system);
  const std::vector<int> all = {0, 1, 2, 3, 4, 5, 6, 7};
  EXPECT_EQ(physical_cores(all, system.path()), (Cores{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
  EXPECT_EQ(physical_cores({1, 2, 5}, system.path()), (Cores{{1, 5}, {2}}));
  EXPECT_EQ(physical_cores({3, 0}, system / "nothing"), (Cores{{0}, {3}}));
}

TEST(Topology, NoTwoProcessesShareACore) {
  const Cores cores = {{0, 4}, {1, 5}, {2, 6}, {3, 7}};
  EXPECT_EQ(share_of(cores, 0, 2), (std::vector<int>{0, 4, 1, 5}));  // a node each
  EXPECT_EQ(share_of(cores, 1, 2), (std::vector<int>{2, 6, 3, 7}));
  EXPECT_EQ(share_of(cores, 2, 4), (std::vector<int>{2, 6}));
  EXPECT_EQ(share_of(cores, 2, 3), (std::vector<int>{2, 6, 3, 7}));
  // More processes than cores: each has a processor, and beyond that they take turns.
  EXPECT_EQ(share_of(cores, 1, 6), (std::vector<int>{1}));
  EXPECT_EQ(share_of(cores, 5, 6), (std::vector<int>{5}));
  EXPECT_EQ(share_of(cores, 8, 9), (std::vector<int>{0}));
  EXPECT_TRUE(share_of({}, 0, 2).empty());
}

TEST(Topology, ProcessorsNearADevice) {
  const TemporaryFolder system;
  const auto write = [&](const char* address, const char* processors) {
    const auto folder = system / ("bus/pci/devices/" + std::string(address));
    std::filesystem::create_directories(folder);
    std::ofstream(folder / "local_cpulist") << processors;
  };
  write("0000:c1:00.0", "0-1,4-5\n");
  write("0000:18:00.0", "3\n");
  write("0000:19:00.0", "\n");
  write("0000:1a:00.0", "2-\n");
  EXPECT_EQ(processors_near("0000:C1:00.0", system.path()), (std::vector<int>{0, 1, 4, 5}));
  EXPECT_EQ(processors_near("0000:18:00.0", system.path()), std::vector<int>{3});
  for (const char* unknown : {"0000:19:00.0", "0000:1a:00.0", "0000:1b:00.0", ""})
    EXPECT_TRUE(processors_near(unknown, system.path()).empty()) << unknown;
}

TEST(Topology, EachProcessTakesTheCoresNearItsDevice) {
  const Cores cores = {{0, 4}, {1, 5}, {2, 6}, {3, 7}};
  const std::vector<int> first = {0, 1, 4, 5}, second = {2, 3, 6, 7};
  const auto shares = [&](const Cores& near) {
    Cores all;
    for (std::size_t i = 0; i < near.size(); ++i) all.push_back(share_near(cores, near, static_cast<int>(i)));
    return all;
  };
  // Devices need not be in the order of the cores.
  EXPECT_EQ(shares({second, first}), (Cores{{2, 6, 3, 7}, {0, 4, 1, 5}}));
  EXPECT_EQ(shares({second, first, second, first}), (Cores{{2, 6}, {0, 4}, {3, 7}, {1, 5}}));
  // Every core is somebody's, also where they cannot be divided evenly.
  EXPECT_EQ(shares({second, first, first}), (Cores{{2, 6}, {0, 4}, {1, 5, 3, 7}}));
  // All devices at one node: its cores are divided, and the others are not left unused.
  EXPECT_EQ(shares({second, second}), (Cores{{0, 4, 2, 6}, {1, 5, 3, 7}}));
  // Where nothing is known: as without devices.
  EXPECT_EQ(shares({{}, {}}), (Cores{share_of(cores, 0, 2), share_of(cores, 1, 2)}));
  EXPECT_EQ(shares({first, {}}), (Cores{{0, 4, 1, 5}, {2, 6, 3, 7}}));
  // More processes than cores.
  EXPECT_EQ(share_near(cores, {first, first, first, first, second}, 4), share_of(cores, 4, 5));
}

}  // namespace
}  // namespace redline
