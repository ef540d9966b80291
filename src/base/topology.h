// How a machine's processors lie: which of them are one physical core, and which cores are near each other or
// a device.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace redline {

// The logical processors `allowed`, by physical core; cores by memory node, then by package. Without Linux's
// files about them, each processor is a core, by number.
std::vector<std::vector<int>> physical_cores(const std::vector<int>& allowed,
                                             const std::filesystem::path& system = "/sys");

// What one of `count` processes takes so that none shares a core, and each stays on as few memory nodes as
// can be: whole cores; where there are fewer of these than processes, one processor.
std::vector<int> share_of(const std::vector<std::vector<int>>& cores, int index, int count);

// The logical processors on the memory node of a PCI device, "0000:18:00.0". Empty where that is not known.
std::vector<int> processors_near(const std::string& pci_address,
                                 const std::filesystem::path& system = "/sys");

// As share_of, for processes with a device each: `near` has what is near the device of each of them. As many
// cores as before, those near its device first; processes whose devices are near the same cores divide them.
std::vector<int> share_near(const std::vector<std::vector<int>>& cores,
                            const std::vector<std::vector<int>>& near, int index);

}  // namespace redline
