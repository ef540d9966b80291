#include "cli/gpu_probe.h"

#include <cstdlib>
#include <system_error>

#include <fmt/format.h>

#include "base/machine.h"
#include "base/shared_library.h"

namespace redline::cli {
namespace {

// The driver's C interface, as documented in the CUDA driver API; 0 is success everywhere.
struct Driver {
  const SharedLibrary& from;
  int (*init)(unsigned) = from.find("cuInit");
  int (*version)(int*) = from.find("cuDriverGetVersion");
  int (*count)(int*) = from.find("cuDeviceGetCount");
  int (*device)(int*, int) = from.find("cuDeviceGet");
  int (*name)(char*, int, int) = from.find("cuDeviceGetName");
  int (*memory)(std::size_t*, int) = from.find("cuDeviceTotalMem_v2");
  int (*attribute)(int*, int, int) = from.find("cuDeviceGetAttribute");
  int (*address)(char*, int, int) = from.find("cuDeviceGetPCIBusId");
  int (*error_text)(int, const char**) = from.find("cuGetErrorString");

  explicit Driver(const SharedLibrary& library) : from(library) {}
  bool complete() const {
    return init && version && count && device && name && memory && attribute && address && error_text;
  }
  std::string explain(int error) const {
    const char* text = nullptr;
    if (error_text(error, &text) != 0 || text == nullptr) return fmt::format("error {}", error);
    return fmt::format("error {}, {}", error, text);
  }
};

// Values of CUdevice_attribute.
constexpr int kComputeMode = 20;
constexpr int kComputeMajor = 75;
constexpr int kComputeMinor = 76;

// NVML's C interface; 0 is success everywhere. Missing functions are not called.
class Management {
 public:
  Management() {
    int (*const init)() = library_.find("nvmlInit_v2");
    started_ = init != nullptr && shutdown_ != nullptr && init() == 0;
  }
  Management(const Management&) = delete;
  Management& operator=(const Management&) = delete;
  ~Management() {
    if (started_) shutdown_();
  }

  std::string driver_version() const {
    char text[96] = {};
    return started_ && version_ != nullptr && version_(text, sizeof text) == 0 ? text : "";
  }
  std::optional<std::uint64_t> free_memory(const char* address) const {
    void* device = nullptr;
    Memory memory{};
    if (!started_ || by_address_ == nullptr || memory_ == nullptr || by_address_(address, &device) != 0 ||
        memory_(device, &memory) != 0)
      return {};
    return memory.free;
  }
  bool has_mig() const {
    unsigned devices = 0;
    if (!started_ || count_ == nullptr || by_index_ == nullptr || mig_ == nullptr || count_(&devices) != 0)
      return false;
    for (unsigned i = 0; i < devices; ++i) {
      void* device = nullptr;
      unsigned now = 0, after = 0;
      if (by_index_(i, &device) == 0 && mig_(device, &now, &after) == 0 && now == 1) return true;
    }
    return false;
  }

 private:
  struct Memory {
    unsigned long long total, free, used;
  };
  SharedLibrary library_{"libnvidia-ml.so.1"};
  int (*shutdown_)() = library_.find("nvmlShutdown");
  int (*version_)(char*, unsigned) = library_.find("nvmlSystemGetDriverVersion");
  int (*count_)(unsigned*) = library_.find("nvmlDeviceGetCount_v2");
  int (*by_index_)(unsigned, void**) = library_.find("nvmlDeviceGetHandleByIndex_v2");
  int (*by_address_)(const char*, void**) = library_.find("nvmlDeviceGetHandleByPciBusId_v2");
  int (*memory_)(void*, Memory*) = library_.find("nvmlDeviceGetMemoryInfo");
  int (*mig_)(void*, unsigned*, unsigned*) = library_.find("nvmlDeviceGetMigMode");
  bool started_ = false;
};

void list_devices(const Driver& driver, const Management& management, GpuProbe& probe) {
  int count = 0;
  if (const int error = driver.count(&count); error != 0) {
    probe.problem = "the driver cannot list its devices: " + driver.explain(error);
    return;
  }
  for (int i = 0; i < count; ++i) {
    int device = 0;
    if (driver.device(&device, i) != 0) continue;
    GpuDevice found;
    char name[256] = {}, address[32] = {};
    if (driver.name(name, sizeof name, device) == 0) found.name = name;
    std::size_t bytes = 0;
    if (driver.memory(&bytes, device) == 0) found.memory_total = bytes;
    driver.attribute(&found.compute_major, kComputeMajor, device);
    driver.attribute(&found.compute_minor, kComputeMinor, device);
    int mode = 0;
    if (driver.attribute(&mode, kComputeMode, device) == 0) found.mode = static_cast<ComputeMode>(mode);
    if (driver.address(address, sizeof address, device) == 0)
      found.memory_free = management.free_memory(address);
    probe.devices.push_back(found);
  }
  if (probe.devices.empty()) probe.problem = "the driver is installed, but offers no device";
}

GpuSurroundings look_around() {
  namespace fs = std::filesystem;
  GpuSurroundings around;
  std::error_code error;
  const auto there = [&](const char* path) { return fs::exists(path, error); };
  const auto set = [](const char* variable) { return std::getenv(variable) != nullptr; };
  around.container = there("/.dockerenv") || there("/run/.containerenv") || set("APPTAINER_CONTAINER") ||
                     set("SINGULARITY_CONTAINER") || set("KUBERNETES_SERVICE_HOST");
  around.wsl = there("/dev/dxg") || inspect_machine().kernel.find("microsoft") != std::string::npos;
  around.wsl_driver = there("/usr/lib/wsl/lib/libcuda.so.1");
  around.kernel_driver = there("/proc/driver/nvidia/version");
  if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES")) {
    around.hides_devices = true;
    around.visible_devices = visible;
  }
  return around;
}

}  // namespace

GpuProbe probe_gpus() {
  GpuProbe probe;
  probe.around = look_around();
  const SharedLibrary library("libcuda.so.1");
  if (!library.loaded()) {
    probe.problem = "no NVIDIA driver (libcuda.so.1 not found)";
    return probe;
  }
  probe.has_driver = true;
  const Driver driver(library);
  if (!driver.complete()) {
    probe.problem = "libcuda.so.1 lacks functions of the driver interface";
    return probe;
  }
  const Management management;
  probe.driver_version = management.driver_version();
  probe.mig = management.has_mig();
  if (int version = 0; driver.version(&version) == 0) probe.cuda_version = version;
  if (const int error = driver.init(0); error != 0) {
    probe.problem = "the NVIDIA driver failed to start: " + driver.explain(error);
    return probe;
  }
  list_devices(driver, management, probe);
  return probe;
}

}  // namespace redline::cli
