#include "base/topology.h"

#include <algorithm>
#include <array>
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
    // One that nothing is known of is a core of its own.
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

}  // namespace redline
