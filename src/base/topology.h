// How a machine's processors lie: which of them are one physical core, and which cores are near each other.
#pragma once

#include <filesystem>
#include <vector>

namespace redline {

// The logical processors `allowed`, by physical core; cores by memory node, then by package. Without Linux's
// files about them, each processor is a core, by number.
std::vector<std::vector<int>> physical_cores(const std::vector<int>& allowed,
                                             const std::filesystem::path& system = "/sys");

// What one of `count` processes takes so that none shares a core, and each stays on as few memory nodes as
// can be: whole cores; where there are fewer of these than processes, one processor.
std::vector<int> share_of(const std::vector<std::vector<int>>& cores, int index, int count);

}  // namespace redline
