#include "base/machine.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>
#include <system_error>
#include <vector>

#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <fmt/format.h>

namespace redline {
namespace {

namespace fs = std::filesystem;

std::string read_text(const fs::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::optional<std::uint64_t> read_number(const fs::path& path) {
  const std::string text = read_text(path);
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;  // "max" and "-1" mean no limit
  return value;
}

// The value after "key<separator>" on the first line that begins with key.
std::string field(const std::string& text, std::string_view key, char separator) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(key)) continue;
    std::size_t at = line.find(separator);
    if (at == std::string::npos) continue;
    at = line.find_first_not_of(" \t\"", at + 1);
    if (at == std::string::npos) return {};
    const std::size_t last = line.find_last_not_of(" \t\"");
    return line.substr(at, last + 1 - at);
  }
  return {};
}

void read_cpu(const fs::path& root, Machine& machine) {
  const std::string text = read_text(root / "proc/cpuinfo");
  machine.cpu = field(text, "model name", ':');
  std::istringstream flags(field(text, "flags", ':'));
  for (std::string flag; flags >> flag;) {
    CpuFeatures& features = machine.features;
    if (flag == "avx2") features.avx2 = true;
    if (flag == "avx512f") features.avx512f = true;
    if (flag == "avx512_bf16") features.avx512_bf16 = true;
    if (flag == "avx512_fp16") features.avx512_fp16 = true;
    if (flag == "amx_bf16") features.amx_bf16 = true;
  }
}

std::uint64_t meminfo_bytes(const std::string& text, std::string_view key) {
  std::uint64_t kib = 0;
  std::istringstream(field(text, key, ':')) >> kib;
  return kib * 1024;
}

// The folders whose limits apply to this process in one controller, its own first, then its ancestors'. In a
// container the path in /proc may be outside the mount; only existing folders count.
std::vector<fs::path> cgroup_folders(const fs::path& root, std::string_view controller) {
  std::vector<fs::path> folders;
  std::istringstream lines(read_text(root / "proc/self/cgroup"));
  for (std::string line; std::getline(lines, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string names = "," + line.substr(first + 1, second - first - 1) + ",";
    fs::path mount = root / "sys/fs/cgroup";
    if (names != ",,") {  // version 1: one hierarchy for each set of controllers
      if (names.find("," + std::string(controller) + ",") == std::string::npos) continue;
      mount /= controller;
    } else if (fs::exists(mount / "unified")) {
      mount /= "unified";
    }
    fs::path path = fs::path(line.substr(second + 1)).relative_path();
    for (;; path = path.parent_path()) {
      std::error_code error;
      if (fs::exists(mount / path, error)) folders.push_back(mount / path);
      if (path.empty()) break;
    }
  }
  return folders;
}

// Whole cores that the tightest CPU quota amounts to, rounded up; 0 when there is none.
int quota_cores(const fs::path& root) {
  double least = 0;
  for (const fs::path& folder : cgroup_folders(root, "cpu")) {
    double quota = 0, period = 0;
    if (!(std::istringstream(read_text(folder / "cpu.max")) >> quota >> period)) {
      quota = static_cast<double>(read_number(folder / "cpu.cfs_quota_us").value_or(0));
      period = static_cast<double>(read_number(folder / "cpu.cfs_period_us").value_or(0));
    }
    if (quota > 0 && period > 0 && (least == 0 || quota / period < least)) least = quota / period;
  }
  return static_cast<int>(std::ceil(std::min(least, 1e6)));
}

void read_cores(const fs::path& root, Machine& machine) {
  machine.cores_total = static_cast<int>(std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN)));
  machine.cores_allowed = machine.cores_total;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) == 0) machine.cores_allowed = CPU_COUNT(&set);
  const int quota = quota_cores(root);
  if (quota > 0) machine.cores_allowed = std::min(machine.cores_allowed, quota);
  machine.cores_allowed = std::max(1, machine.cores_allowed);
}

void read_memory(const fs::path& root, Machine& machine) {
  const std::string text = read_text(root / "proc/meminfo");
  machine.memory_total = meminfo_bytes(text, "MemTotal");
  machine.memory_available = meminfo_bytes(text, "MemAvailable");
  for (const fs::path& folder : cgroup_folders(root, "memory")) {
    auto limit = read_number(folder / "memory.max");
    auto used = read_number(folder / "memory.current");
    std::string cache_key = "file ";
    if (!limit) {
      limit = read_number(folder / "memory.limit_in_bytes");
      used = read_number(folder / "memory.usage_in_bytes");
      cache_key = "total_cache ";
    }
    if (!limit) continue;
    if (*limit < machine.memory_total) {
      machine.memory_total = *limit;
      machine.memory_limited = true;
    }
    // Page cache counts as used in a cgroup, yet gives way when memory is asked for.
    std::uint64_t cache = 0;
    std::istringstream(field(read_text(folder / "memory.stat"), cache_key, ' ')) >> cache;
    const std::uint64_t taken = used.value_or(0) - std::min(cache, used.value_or(0));
    machine.memory_available = std::min(machine.memory_available, *limit - std::min(*limit, taken));
  }
}

}  // namespace

Machine inspect_machine(const fs::path& root) {
  Machine machine;
  read_cpu(root, machine);
  read_cores(root, machine);
  read_memory(root, machine);
  machine.os = field(read_text(root / "etc/os-release"), "PRETTY_NAME", '=');
  struct utsname names {};
  if (::uname(&names) == 0) {
    machine.hostname = names.nodename;
    machine.kernel = std::string(names.sysname) + " " + names.release;
  }
  return machine;
}

std::string describe(const CpuFeatures& features) {
  std::string text;
  const auto add = [&text](bool has, const char* name) {
    if (has) text += (text.empty() ? "" : " ") + std::string(name);
  };
  add(features.avx2, "avx2");
  add(features.avx512f, "avx512f");
  add(features.avx512_bf16, "avx512_bf16");
  add(features.avx512_fp16, "avx512_fp16");
  add(features.amx_bf16, "amx_bf16");
  return text.empty() ? "none of note" : text;
}

std::string cache_folder() {
  // A relative path is to be ignored, by the specification of XDG_CACHE_HOME.
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && cache[0] == '/')
    return fmt::format("{}/redline", cache);
  const char* home = std::getenv("HOME");
  return home == nullptr || home[0] == '\0' ? "" : fmt::format("{}/.cache/redline", home);
}

}  // namespace redline
