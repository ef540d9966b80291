#include "base/topology.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <fstream>
#include <map>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace redline {
namespace {

int number_in(const std::filesystem::path& path) {
  std::ifstream file(path);
  int number = -1;
  return file >> number ? number : -1;
}

// A processor's folder has a link of its memory node's name: "node1".
int node_of(const std::filesystem::path& processor) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(processor, error)) {
    const std::string name = entry.path().filename().string();
    int node = 0;
    if (!name.starts_with("node")) continue;
    const auto [end, failed] = std::from_chars(name.data() + 4, name.data() + name.size(), node);
    if (failed == std::errc() && end == name.data() + name.size()) return node;
  }
  return 0;
}

}  // namespace

std::vector<std::vector<int>> physical_cores(const std::vector<int>& allowed,
                                             const std::filesystem::path& system) {
  std::map<std::array<int, 5>, std::vector<int>> cores;  // by node, package, die, core
  for (const int processor : allowed) {
    const std::filesystem::path folder = system / "devices/system/cpu" / ("cpu" + std::to_string(processor));
    const int core = number_in(folder / "topology/core_id");
    // A processor without topology information counts as a core.
    cores[{node_of(folder), number_in(folder / "topology/physical_package_id"),
           number_in(folder / "topology/die_id"), core, core < 0 ? processor : 0}]
        .push_back(processor);
  }
  std::vector<std::vector<int>> all;
  for (auto& [place, processors] : cores) all.push_back(std::move(processors));
  return all;
}

std::vector<int> share_of(const std::vector<std::vector<int>>& cores, int index, int count) {
  const auto at = static_cast<std::size_t>(index), of = static_cast<std::size_t>(count);
  std::vector<int> own;
  if (cores.size() >= of) {
    for (std::size_t i = at * cores.size() / of; i < (at + 1) * cores.size() / of; ++i)
      own.insert(own.end(), cores[i].begin(), cores[i].end());
    return own;
  }
  // Each core's first processor before the second of any.
  std::size_t most = 0;
  for (const auto& core : cores) most = std::max(most, core.size());
  for (std::size_t sibling = 0; sibling < most; ++sibling)
    for (const auto& core : cores)
      if (sibling < core.size()) own.push_back(core[sibling]);
  if (own.empty()) return own;
  return {own[at % own.size()]};
}

std::vector<int> processors_near(const std::string& pci_address, const std::filesystem::path& system) {
  std::string name = pci_address;
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
  std::ifstream file(system / "bus/pci/devices" / name / "local_cpulist");  // "0-31,64-95"
  std::vector<int> processors;
  char separator = ',';
  for (int first = 0; separator == ',' && file >> first;) {
    int last = first;
    if (file.get(separator) && separator == '-' && !(file >> last && file.get(separator))) break;
    for (int processor = first; processor <= last; ++processor) processors.push_back(processor);
  }
  return processors;
}

std::vector<int> share_near(const std::vector<std::vector<int>>& cores,
                            const std::vector<std::vector<int>>& near, int index) {
  const std::size_t count = near.size(), all = cores.size();
  if (all < count) return share_of(cores, index, static_cast<int>(count));
  constexpr int kFree = -1;
  std::vector<int> owners(all, kFree);
  std::vector<std::size_t> lacks(count);
  for (std::size_t i = 0; i < count; ++i) lacks[i] = (i + 1) * all / count - i * all / count;
  const auto take = [&](std::size_t core, std::size_t process) {
    if (owners[core] != kFree || lacks[process] == 0) return;
    owners[core] = static_cast<int>(process);
    --lacks[process];
  };
  for (std::size_t i = 0; i < count; ++i) {
    const auto before = near.begin() + static_cast<std::ptrdiff_t>(i);
    const auto at = static_cast<std::size_t>(std::count(near.begin(), before, near[i]));
    const auto of = static_cast<std::size_t>(std::ranges::count(near, near[i]));
    std::vector<std::size_t> own;
    for (std::size_t core = 0; core < all; ++core)
      if (std::ranges::find_first_of(cores[core], near[i]) != cores[core].end()) own.push_back(core);
    for (std::size_t k = at * own.size() / of; k < (at + 1) * own.size() / of; ++k) take(own[k], i);
  }
  for (std::size_t core = 0; core < all; ++core)
    for (std::size_t i = 0; i < count; ++i) take(core, i);
  std::vector<int> own;
  for (std::size_t core = 0; core < all; ++core)
    if (owners[core] == index) own.insert(own.end(), cores[core].begin(), cores[core].end());
  return own;
}

}  // namespace redline
