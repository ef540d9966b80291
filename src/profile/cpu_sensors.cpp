#include "profile/cpu_sensors.h"

#include <linux/perf_event.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#include <system_error>
#include <utility>

#include <fmt/format.h>

namespace redline::profile {
namespace fs = std::filesystem;
namespace {

std::optional<std::uint64_t> number_in(const fs::path& file) {
  std::ifstream in(file);
  std::uint64_t value = 0;
  return in >> value ? std::optional(value) : std::nullopt;
}

std::string word_in(const fs::path& file) {
  std::ifstream in(file);
  std::string word;
  in >> word;
  return word;
}

std::vector<fs::path> folders_in(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) found.push_back(entry.path());
  std::ranges::sort(found);
  return found;
}

int open_counter(std::uint64_t event, pid_t thread) {
  perf_event_attr attributes{};
  attributes.size = sizeof attributes;
  attributes.type = PERF_TYPE_HARDWARE;
  attributes.config = event;
  attributes.inherit = 1;
  attributes.exclude_kernel = 1;
  attributes.exclude_hv = 1;
  return static_cast<int>(::syscall(SYS_perf_event_open, &attributes, thread, -1, -1, PERF_FLAG_FD_CLOEXEC));
}

std::optional<std::uint64_t> sum_of(const std::vector<int>& descriptors) {
  std::uint64_t sum = 0;
  for (const int descriptor : descriptors) {
    std::uint64_t value = 0;
    if (::read(descriptor, &value, sizeof value) == sizeof value) sum += value;
  }
  return descriptors.empty() ? std::nullopt : std::optional(sum);
}

double seconds_of(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

}  // namespace

HardwareCounters::HardwareCounters() {
  int error = 0;
  for (const fs::path& task : folders_in("/proc/self/task")) {
    const auto thread = static_cast<pid_t>(std::atoi(task.filename().c_str()));
    const std::pair<std::uint64_t, std::vector<int>*> events[] = {
        {PERF_COUNT_HW_INSTRUCTIONS, &instructions_},
        {PERF_COUNT_HW_CPU_CYCLES, &cycles_},
        {PERF_COUNT_HW_CACHE_MISSES, &misses_}};
    for (const auto& [event, descriptors] : events) {
      const int descriptor = open_counter(event, thread);
      if (descriptor >= 0) {
        descriptors->push_back(descriptor);
      } else if (error == 0) {
        error = errno;
      }
    }
  }
  if (!instructions_.empty() || error == 0) return;
  refusal_ =
      error == EACCES || error == EPERM
          ? fmt::format("counting is not permitted: kernel.perf_event_paranoid is {} and must be 2 or less",
                        word_in("/proc/sys/kernel/perf_event_paranoid"))
          : fmt::format("this machine offers no hardware counters ({})", std::strerror(error));
}

HardwareCounters::~HardwareCounters() {
  for (const auto* descriptors : {&instructions_, &cycles_, &misses_}) {
    for (const int descriptor : *descriptors) ::close(descriptor);
  }
}

void HardwareCounters::read(CpuSample& sample) const {
  sample.instructions = sum_of(instructions_);
  sample.cycles = sum_of(cycles_);
  sample.cache_misses = sum_of(misses_);
}

std::optional<CpuShares> shares_between(const CpuSample& before, const CpuSample& after) {
  constexpr double kLeast = 0.1;  // processor seconds: ten of the kernel's units
  if (!before.times || !after.times || after.times->all - before.times->all < kLeast) return {};
  const double all = after.times->all - before.times->all;
  const auto part = [&](double seconds) { return std::clamp(seconds / all, 0.0, 1.0); };
  CpuShares shares;
  // The two clocks may differ by a unit or so.
  const double busy = part(after.times->busy - before.times->busy);
  shares.own = std::min(part(after.cpu_seconds - before.cpu_seconds), busy);
  shares.others = busy - shares.own;
  shares.stolen = part(after.times->stolen - before.times->stolen);
  return shares;
}

CpuSensors::CpuSensors(fs::path root, Counting counting) : root_(std::move(root)) {
  if (counting == Counting::on) counters_ = std::make_unique<HardwareCounters>();
  cpu_set_t set;
  if (::sched_getaffinity(0, sizeof set, &set) == 0) {
    for (int i = 0; i < CPU_SETSIZE; ++i) allowed_.push_back(CPU_ISSET(i, &set));
  }
  std::error_code ignored;
  for (const fs::path& cpu : folders_in(root_ / "sys/devices/system/cpu")) {
    const fs::path clock = cpu / "cpufreq/scaling_cur_freq";
    if (fs::exists(clock, ignored)) clocks_.push_back(clock);
  }
  for (const fs::path& sensor : folders_in(root_ / "sys/class/hwmon")) {
    const std::string name = word_in(sensor / "name");
    if (name == "coretemp" || name == "k10temp" || name == "zenpower") {
      if (number_in(sensor / "temp1_input")) temperatures_.push_back(sensor / "temp1_input");
    }
  }
  for (const fs::path& zone : folders_in(root_ / "sys/class/thermal")) {
    if (temperatures_.empty() && word_in(zone / "type") == "x86_pkg_temp" && number_in(zone / "temp"))
      temperatures_.push_back(zone / "temp");
  }
  for (const fs::path& domain : folders_in(root_ / "sys/class/powercap")) {
    if (!word_in(domain / "name").starts_with("package")) continue;
    const auto now = number_in(domain / "energy_uj");  // readable by root only on most machines
    if (now)
      energies_.push_back(
          {domain / "energy_uj", number_in(domain / "max_energy_range_uj").value_or(0), *now});
  }
}

std::optional<double> CpuSensors::clock() const {
  double sum = 0;
  int count = 0;
  for (const fs::path& file : clocks_) {
    const auto khz = number_in(file);
    if (!khz) continue;
    sum += static_cast<double>(*khz) / 1000;
    ++count;
  }
  if (count == 0) {
    std::ifstream in(root_ / "proc/cpuinfo");
    for (std::string line; std::getline(in, line);) {
      if (!line.starts_with("cpu MHz")) continue;
      const std::size_t colon = line.find(':');
      if (colon == std::string::npos) continue;
      sum += std::strtod(line.c_str() + colon + 1, nullptr);
      ++count;
    }
  }
  return count > 0 && sum > 0 ? std::optional(sum / count) : std::nullopt;
}

std::optional<CpuTimes> CpuSensors::times() const {
  static const double unit = 1.0 / static_cast<double>(::sysconf(_SC_CLK_TCK));
  CpuTimes sum;
  std::ifstream in(root_ / "proc/stat");
  for (std::string line; std::getline(in, line) && line.starts_with("cpu");) {
    std::istringstream words(line.substr(3));
    std::size_t processor = 0;
    if (line[3] == ' ' || !(words >> processor)) continue;  // the first line sums over all
    if (processor < allowed_.size() && !allowed_[processor]) continue;
    double user = 0, nice = 0, system = 0, idle = 0, wait = 0, interrupts = 0, soft = 0, stolen = 0;
    if (!(words >> user >> nice >> system >> idle >> wait >> interrupts >> soft >> stolen)) return {};
    const double busy = user + nice + system + interrupts + soft;
    sum.busy += unit * busy;
    sum.stolen += unit * stolen;
    sum.all += unit * (busy + idle + wait + stolen);
  }
  return sum.all > 0 ? std::optional(sum) : std::nullopt;
}

CpuSample CpuSensors::read() {
  CpuSample sample;
  sample.clock_mhz = clock();
  for (const fs::path& file : temperatures_) {
    const auto value = number_in(file);  // in thousandths of a degree
    if (value)
      sample.temperature_c = std::max(sample.temperature_c.value_or(0), static_cast<double>(*value) / 1000);
  }
  for (Energy& energy : energies_) {
    const auto now = number_in(energy.file);
    if (!now) continue;
    energy_uj_ += *now >= energy.last ? *now - energy.last : *now + energy.range - energy.last;
    energy.last = *now;
  }
  if (!energies_.empty()) sample.energy_uj = energy_uj_;
  rusage usage{};
  if (::getrusage(RUSAGE_SELF, &usage) == 0)
    sample.cpu_seconds = seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime);
  std::ifstream statm(root_ / "proc/self/statm");
  std::uint64_t size = 0, resident = 0;
  if (statm >> size >> resident)
    sample.resident_bytes = resident * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  sample.times = times();
  if (counters_) counters_->read(sample);
  return sample;
}

}  // namespace redline::profile
