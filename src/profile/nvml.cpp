#include "profile/nvml.h"

#include <array>
#include <cmath>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/shared_library.h"

namespace redline::profile {
namespace {

// Constants of the library's C interface, the same in all versions.
constexpr int kSmClock = 1, kMemoryClock = 2;
constexpr int kPcieSent = 0, kPcieReceived = 1;
constexpr unsigned kPowerNow = 186;  // a field: without it, power is a mean over the last second

struct Utilization {
  unsigned gpu, memory;
};
struct Memory {
  unsigned long long total, free, used;
};
struct FieldValue {
  unsigned field, scope;
  long long timestamp, latency;
  int type, result;
  union {
    double number;
    unsigned value;
    unsigned long long wide;
  };
};

// Performance monitoring (GPM).
struct GpmSupport {
  unsigned version, supported;
};
struct GpmMetric {
  unsigned id;
  int result;
  double value;
  const char *short_name, *long_name, *unit;
};
struct GpmQuery {
  unsigned version, count;
  void *first, *second;
  GpmMetric metrics[333];  // room for all of the newest version; `count` are read
};
constexpr unsigned kGpmSm = 2, kGpmTensor = 5, kGpmDram = 10, kGpmFp32 = 12, kGpmFp16 = 13;

}  // namespace

// 0 is success everywhere. Functions that this driver lacks are null.
struct Nvml::Interface {
  explicit Interface(const std::string& library) : from(library) {}

  SharedLibrary from;
  int (*init)() = from.find("nvmlInit_v2");
  int (*shutdown)() = from.find("nvmlShutdown");
  const char* (*error_text)(int) = from.find("nvmlErrorString");
  int (*by_address)(const char*, void**) = from.find("nvmlDeviceGetHandleByPciBusId_v2");
  int (*driver_version)(char*, unsigned) = from.find("nvmlSystemGetDriverVersion");
  int (*name)(void*, char*, unsigned) = from.find("nvmlDeviceGetName");
  int (*uuid)(void*, char*, unsigned) = from.find("nvmlDeviceGetUUID");
  int (*capability)(void*, int*, int*) = from.find("nvmlDeviceGetCudaComputeCapability");
  int (*cores)(void*, unsigned*) = from.find("nvmlDeviceGetNumGpuCores");
  int (*clock)(void*, int, unsigned*) = from.find("nvmlDeviceGetClockInfo");
  int (*max_clock)(void*, int, unsigned*) = from.find("nvmlDeviceGetMaxClockInfo");
  int (*processes)(void*, unsigned*, void*) = find_processes();
  int (*power)(void*, unsigned*) = from.find("nvmlDeviceGetPowerUsage");
  int (*power_limit)(void*, unsigned*) = from.find("nvmlDeviceGetEnforcedPowerLimit");
  int (*power_range)(void*, unsigned*, unsigned*) = from.find("nvmlDeviceGetPowerManagementLimitConstraints");
  int (*power_setting)(void*, unsigned*) = from.find("nvmlDeviceGetPowerManagementLimit");
  int (*set_power)(void*, unsigned) = from.find("nvmlDeviceSetPowerManagementLimit");
  int (*fields)(void*, int, FieldValue*) = from.find("nvmlDeviceGetFieldValues");
  int (*temperature)(void*, int, unsigned*) = from.find("nvmlDeviceGetTemperature");
  int (*throttle)(void*, unsigned long long*) = find_throttle();
  int (*use)(void*, Utilization*) = from.find("nvmlDeviceGetUtilizationRates");
  int (*memory)(void*, Memory*) = from.find("nvmlDeviceGetMemoryInfo");
  int (*energy)(void*, unsigned long long*) = from.find("nvmlDeviceGetTotalEnergyConsumption");
  int (*gpm_support)(void*, GpmSupport*) = from.find("nvmlGpmQueryDeviceSupport");
  int (*gpm_alloc)(void**) = from.find("nvmlGpmSampleAlloc");
  int (*gpm_free)(void*) = from.find("nvmlGpmSampleFree");
  int (*gpm_sample)(void*, void*) = from.find("nvmlGpmSampleGet");
  int (*gpm_metrics)(GpmQuery*) = from.find("nvmlGpmMetricsGet");
  bool has_gpm() const { return gpm_support && gpm_alloc && gpm_free && gpm_sample && gpm_metrics; }
  int (*pcie)(void*, int, unsigned*) = from.find("nvmlDeviceGetPcieThroughput");

  int (*find_processes() const)(void*, unsigned*, void*) {
    for (const char* symbol :
         {"nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2",
          "nvmlDeviceGetComputeRunningProcesses"})
      if (int (*const found)(void*, unsigned*, void*) = from.find(symbol)) return found;
    return nullptr;
  }

  // Renamed in newer drivers.
  int (*find_throttle() const)(void*, unsigned long long*) {
    int (*const now)(void*, unsigned long long*) = from.find("nvmlDeviceGetCurrentClocksEventReasons");
    if (now != nullptr) return now;
    return from.find("nvmlDeviceGetCurrentClocksThrottleReasons");
  }
};

namespace {

// The value that a function returns through its last argument; empty if it fails or is missing.
template <typename Value, typename Function, typename... Arguments>
std::optional<Value> ask(Function* function, Arguments... arguments) {
  Value value{};
  if (function == nullptr || function(arguments..., &value) != 0) return {};
  return value;
}

template <typename Function, typename... Arguments>
std::string ask_text(Function* function, Arguments... arguments) {
  std::array<char, 128> text{};
  if (function == nullptr || function(arguments..., text.data(), text.size()) != 0) return {};
  return text.data();
}

}  // namespace

std::string throttle_text(std::uint64_t bits) {
  constexpr std::pair<std::uint64_t, std::string_view> kReasons[] = {
      {1, "idle"},        {2, "app_clocks"},    {4, "sw_power_cap"},
      {8, "hw_slowdown"}, {16, "sync_boost"},   {32, "sw_thermal"},
      {64, "hw_thermal"}, {128, "power_brake"}, {256, "display_clocks"}};
  std::string text;
  for (const auto& [bit, reason] : kReasons) {
    if ((bits & bit) == 0) continue;
    if (!text.empty()) text += '|';
    text += reason;
  }
  return text.empty() ? "none" : text;
}

Nvml::Nvml(const std::string& pci_address, const std::string& library)
    : calls_(std::make_unique<Interface>(library)) {
  if (!calls_->from.loaded()) throw UnavailableError("no GPU telemetry: {} not found", library);
  if (calls_->init == nullptr || calls_->shutdown == nullptr || calls_->by_address == nullptr)
    throw UnavailableError("no GPU telemetry: {} lacks functions of NVML", library);
  if (const int error = calls_->init(); error != 0)
    throw UnavailableError("no GPU telemetry: NVML failed to start: {}", explain(error));
  if (const int error = calls_->by_address(pci_address.c_str(), &device_); error != 0) {
    calls_->shutdown();
    throw UnavailableError("no GPU telemetry: the GPU at {} cannot be read: {}", pci_address, explain(error));
  }
}

std::string Nvml::explain(int error) const {
  return calls_->error_text == nullptr ? fmt::format("error {}", error) : calls_->error_text(error);
}

Nvml::~Nvml() {
  if (averages_begin_ != nullptr) calls_->gpm_free(averages_begin_);
  calls_->shutdown();
}

bool Nvml::begin_averages() {
  if (!calls_->has_gpm()) return false;
  GpmSupport support{1, 0};
  if (calls_->gpm_support(device_, &support) != 0 || support.supported == 0) return false;
  if (averages_begin_ == nullptr && calls_->gpm_alloc(&averages_begin_) != 0) return false;
  averages_watch_ = {};
  if (calls_->gpm_sample(device_, averages_begin_) == 0) return true;
  calls_->gpm_free(std::exchange(averages_begin_, nullptr));
  return false;
}

std::optional<GpuAverages> Nvml::end_averages() {
  if (averages_begin_ == nullptr) return {};
  void* end = nullptr;
  if (calls_->gpm_alloc(&end) != 0) return {};
  const auto query = std::make_unique<GpmQuery>();
  query->version = 1;
  query->first = averages_begin_;
  query->second = end;
  GpuAverages averages;
  averages.seconds = averages_watch_.seconds();
  const std::pair<unsigned, std::optional<double>*> wanted[] = {{kGpmSm, &averages.sm_pct},
                                                                {kGpmTensor, &averages.tensor_pct},
                                                                {kGpmDram, &averages.dram_pct},
                                                                {kGpmFp32, &averages.fp32_pct},
                                                                {kGpmFp16, &averages.fp16_pct}};
  for (const auto& [id, value] : wanted) query->metrics[query->count++].id = id;
  const bool told = calls_->gpm_sample(device_, end) == 0 && calls_->gpm_metrics(query.get()) == 0;
  for (unsigned i = 0; told && i < query->count; ++i) {
    const GpmMetric& metric = query->metrics[i];
    if (metric.result == 0 && std::isfinite(metric.value)) *wanted[i].second = metric.value;
  }
  calls_->gpm_free(end);
  calls_->gpm_free(std::exchange(averages_begin_, nullptr));
  return told ? std::optional(averages) : std::nullopt;
}

std::string Nvml::name() const { return ask_text(calls_->name, device_); }
std::string Nvml::uuid() const { return ask_text(calls_->uuid, device_); }
std::string Nvml::driver() const { return ask_text(calls_->driver_version); }

GpuShape Nvml::shape() const {
  GpuShape shape;
  if (calls_->capability == nullptr ||
      calls_->capability(device_, &shape.compute_major, &shape.compute_minor) != 0)
    return {};
  // Cores per SM: 64 up to compute capability 8.0 (except small Pascal GPUs), and 128 since.
  const int each = shape.compute_major * 10 + shape.compute_minor <= 80 ? 64 : 128;
  shape.processors = static_cast<int>(ask<unsigned>(calls_->cores, device_).value_or(0)) / each;
  return shape;
}

GpuSample Nvml::read() const {
  GpuSample sample;
  sample.sm_clock_mhz = ask<unsigned>(calls_->clock, device_, kSmClock);
  sample.memory_clock_mhz = ask<unsigned>(calls_->clock, device_, kMemoryClock);
  FieldValue power{};
  power.field = kPowerNow;
  if (calls_->fields != nullptr && calls_->fields(device_, 1, &power) == 0 && power.result == 0 &&
      power.value > 0) {
    sample.power_mw = power.value;
  } else {
    sample.power_mw = ask<unsigned>(calls_->power, device_);
  }
  sample.power_limit_mw = ask<unsigned>(calls_->power_limit, device_);
  sample.temperature_c = ask<unsigned>(calls_->temperature, device_, 0);
  sample.throttle = ask<unsigned long long>(calls_->throttle, device_);
  if (const auto use = ask<Utilization>(calls_->use, device_)) {
    sample.use_pct = use->gpu;
    sample.memory_use_pct = use->memory;
  }
  if (const auto memory = ask<Memory>(calls_->memory, device_)) sample.memory_used = memory->used;
  sample.energy_mj = ask<unsigned long long>(calls_->energy, device_);
  return sample;
}

GpuState Nvml::read_state() const {
  GpuState state;
  state.max_sm_clock_mhz = ask<unsigned>(calls_->max_clock, device_, kSmClock);
  unsigned least = 0, most = 0;
  if (calls_->power_range != nullptr && calls_->power_range(device_, &least, &most) == 0)
    state.max_power_limit_mw = most;
  // Without room for the list, the library returns its length. It includes this process, though not by its
  // id: the driver's process ids differ from those in a container.
  constexpr int kTooSmall = 7;
  unsigned count = 0;
  if (calls_->processes != nullptr) {
    const int result = calls_->processes(device_, &count, nullptr);
    if (result == 0 || result == kTooSmall) state.other_processes = count > 0 ? count - 1 : 0;
  }
  return state;
}

PowerLimits Nvml::power_limits() const {
  PowerLimits limits;
  if (calls_->power_range == nullptr || calls_->power_setting == nullptr || calls_->set_power == nullptr)
    throw UnavailableError("this driver cannot set a power limit");
  int error = calls_->power_range(device_, &limits.lowest, &limits.highest);
  if (error == 0) error = calls_->power_setting(device_, &limits.now);
  if (error != 0) throw UnavailableError("the GPU's power limit cannot be set: {}", explain(error));
  return limits;
}

void Nvml::set_power_limit(unsigned milliwatts) const {
  constexpr int kNoPermission = 4;
  if (calls_->set_power == nullptr) throw UnavailableError("this driver cannot set a power limit");
  const int error = calls_->set_power(device_, milliwatts);
  if (error == 0) return;
  throw UnavailableError("the driver refused to set the power limit to {} W: {}{}", milliwatts / 1000,
                         explain(error),
                         error == kNoPermission ? "; this needs root, possibly outside the container" : "");
}

PcieSample Nvml::read_pcie() const {
  return {ask<unsigned>(calls_->pcie, device_, kPcieReceived),
          ask<unsigned>(calls_->pcie, device_, kPcieSent)};
}

}  // namespace redline::profile
