#include "backend/cuda_plugin.h"

#include <dlfcn.h>

#include <filesystem>
#include <system_error>

#include "backend/cuda_libraries.h"
#include "base/error.h"
#include "base/process.h"
#include "comm/communicator.h"

namespace redline::backend {
namespace {

namespace fs = std::filesystem;

// Next to the program or above it (a build and its tests), or in the lib/ of a bundle, relative to bin/ and
// to lib/redline/tests/.
fs::path find_plugin() {
  const fs::path folder = program_folder();
  for (const char* place : {".", "..", "../lib", "../.."}) {
    const fs::path candidate = folder / place / "libredline_cuda.so";
    std::error_code error;
    if (fs::exists(candidate, error)) return candidate;
  }
  return {};
}

// A function of the plugin by name, after loading the libraries that it needs; NCCL too with several ranks.
template <typename Function>
Function entry_of(const char* name, bool several) {
  if (const std::string why = why_no_cuda(); !why.empty()) throw UnavailableError("--device cuda: {}", why);
  load_cuda_libraries(several);
  const fs::path plugin = find_plugin();
  void* library = dlopen(plugin.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    throw UnavailableError("--device cuda: {} does not load: {}", plugin.string(), dlerror());
  }
  const auto entry = reinterpret_cast<Function>(dlsym(library, name));
  check(entry != nullptr, "{} is not a Redline plugin", plugin.string());
  return entry;
}

}  // namespace

bool has_cuda_driver() {
  void* driver = dlopen("libcuda.so.1", RTLD_LAZY);
  if (driver == nullptr) return false;
  dlclose(driver);
  return true;
}

std::string why_no_cuda() {
  if (!has_cuda_driver()) return "there is no NVIDIA driver (libcuda.so.1): install one, or use --device cpu";
  if (find_plugin().empty()) {
    return "this build has no CUDA backend (libredline_cuda.so): build with 'cmake --preset cuda'";
  }
  return {};
}

std::unique_ptr<Backend> load_cuda_backend(const DeviceOptions& options) {
  const bool several = options.communicator != nullptr && options.communicator->size() > 1;
  using Make = Backend* (*)(const DeviceOptions*);
  return std::unique_ptr<Backend>(entry_of<Make>("redline_make_cuda_backend", several)(&options));
}

std::shared_ptr<MemoryStudy> load_cuda_memory_study(const DeviceOptions& options) {
  using Make = MemoryStudy* (*)(const DeviceOptions*);
  return std::shared_ptr<MemoryStudy>(entry_of<Make>("redline_make_cuda_memory_study", false)(&options));
}

std::unique_ptr<comm::Fabric> load_cuda_fabric(const FabricOptions& options) {
  using Make = comm::Fabric* (*)(const FabricOptions*);
  return std::unique_ptr<comm::Fabric>(entry_of<Make>("redline_make_cuda_fabric", true)(&options));
}

}  // namespace redline::backend
