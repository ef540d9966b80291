// The CPU topology: which logical processors share a physical core, and which cores are near each other or
// near a device.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace redline {

// The logical processors `allowed`, grouped by physical core; cores are ordered by NUMA node, then by
// package. Without Linux's topology files, each processor counts as a core, by number.
std::vector<std::vector<int>> physical_cores(const std::vector<int>& allowed,
                                             const std::filesystem::path& system = "/sys");

// The share of one of `count` processes: whole cores on as few NUMA nodes as possible, so that no two
// processes share a core. If there are fewer cores than processes, one processor.
std::vector<int> share_of(const std::vector<std::vector<int>>& cores, int index, int count);

// The logical processors on the NUMA node of a PCI device, "0000:18:00.0". Empty if unknown.
std::vector<int> processors_near(const std::string& pci_address,
                                 const std::filesystem::path& system = "/sys");

// Like share_of, for processes with one device each: `near` has the processors near each process's device.
// The share has as many cores, those near its device first; processes whose devices are near the same cores
// divide them.
std::vector<int> share_near(const std::vector<std::vector<int>>& cores,
                            const std::vector<std::vector<int>>& near, int index);

}  // namespace redline
