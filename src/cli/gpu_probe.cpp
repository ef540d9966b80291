#include "cli/gpu_probe.h"

#include <fmt/format.h>

#include "base/shared_library.h"

namespace redline::cli {
namespace {

// The driver's C interface, as documented in the CUDA driver API; 0 is success everywhere.
struct Driver {
  explicit Driver(const SharedLibrary& library)
      : init(library.find<int(unsigned)>("cuInit")),
        version(library.find<int(int*)>("cuDriverGetVersion")),
        count(library.find<int(int*)>("cuDeviceGetCount")),
        device(library.find<int(int*, int)>("cuDeviceGet")),
        name(library.find<int(char*, int, int)>("cuDeviceGetName")),
        memory(library.find<int(std::size_t*, int)>("cuDeviceTotalMem_v2")),
        attribute(library.find<int(int*, int, int)>("cuDeviceGetAttribute")),
        error_text(library.find<int(int, const char**)>("cuGetErrorString")) {}
  bool complete() const {
    return init && version && count && device && name && memory && attribute && error_text;
  }
  std::string explain(int error) const {
    const char* text = nullptr;
    if (error_text(error, &text) != 0 || text == nullptr) return fmt::format("error {}", error);
    return fmt::format("error {}, {}", error, text);
  }

  int (*init)(unsigned);
  int (*version)(int*);
  int (*count)(int*);
  int (*device)(int*, int);
  int (*name)(char*, int, int);
  int (*memory)(std::size_t*, int);
  int (*attribute)(int*, int, int);
  int (*error_text)(int, const char**);
};

// Of CUdevice_attribute.
constexpr int kComputeMajor = 75;
constexpr int kComputeMinor = 76;

std::string management_driver_version() {
  const SharedLibrary library("libnvidia-ml.so.1");
  const auto init = library.find<int()>("nvmlInit_v2");
  const auto shutdown = library.find<int()>("nvmlShutdown");
  const auto version = library.find<int(char*, unsigned)>("nvmlSystemGetDriverVersion");
  if (init == nullptr || shutdown == nullptr || version == nullptr || init() != 0) return {};
  char text[96] = {};
  const bool known = version(text, sizeof text) == 0;
  shutdown();
  return known ? text : "";
}

void list_devices(const Driver& driver, GpuProbe& probe) {
  int count = 0;
  if (const int error = driver.count(&count); error != 0) {
    probe.problem = "the driver cannot list its devices: " + driver.explain(error);
    return;
  }
  for (int i = 0; i < count; ++i) {
    int device = 0;
    if (driver.device(&device, i) != 0) continue;
    GpuDevice found;
    char name[256] = {};
    if (driver.name(name, sizeof name, device) == 0) found.name = name;
    std::size_t bytes = 0;
    if (driver.memory(&bytes, device) == 0) found.memory_total = bytes;
    driver.attribute(&found.compute_major, kComputeMajor, device);
    driver.attribute(&found.compute_minor, kComputeMinor, device);
    probe.devices.push_back(found);
  }
  if (probe.devices.empty()) probe.problem = "the driver is there, but offers no device";
}

}  // namespace

GpuProbe probe_gpus() {
  GpuProbe probe;
  const SharedLibrary library("libcuda.so.1");
  if (!library.loaded()) {
    probe.problem = "no NVIDIA driver (libcuda.so.1 is not there)";
    return probe;
  }
  probe.has_driver = true;
  const Driver driver(library);
  if (!driver.complete()) {
    probe.problem = "libcuda.so.1 is there, but lacks functions of the driver interface";
    return probe;
  }
  probe.driver_version = management_driver_version();
  if (int version = 0; driver.version(&version) == 0) {
    probe.cuda_version = fmt::format("{}.{}", version / 1000, version % 1000 / 10);
  }
  if (const int error = driver.init(0); error != 0) {
    probe.problem = "the NVIDIA driver does not start: " + driver.explain(error);
    return probe;
  }
  list_devices(driver, probe);
  return probe;
}

}  // namespace redline::cli
