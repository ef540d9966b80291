#include "backend/cuda_plugin.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <vector>

#include "base/error.h"
#include "base/process.h"
#include "comm/communicator.h"

namespace redline::backend {
namespace {

namespace fs = std::filesystem;

// Beside the program or above it (a build and its tests), or in the lib/ of a bundle, seen from bin/ and from
// lib/redline/tests/.
fs::path find_plugin() {
  const fs::path folder = program_folder();
  for (const char* place : {".", "..", "../lib", "../.."}) {
    const fs::path candidate = folder / place / "libredline_cuda.so";
    std::error_code error;
    if (fs::exists(candidate, error)) return candidate;
  }
  return {};
}

// Folders in which NVIDIA's Python packages keep their libraries.
std::vector<fs::path> python_library_folders() {
  std::vector<fs::path> roots;
  for (const char* variable : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    if (const char* value = std::getenv(variable)) roots.emplace_back(fs::path(value) / "lib");
  }
  if (const char* home = std::getenv("HOME")) roots.emplace_back(fs::path(home) / ".local/lib");
  roots.insert(roots.end(), {"/usr/local/lib", "/usr/lib"});
  std::vector<fs::path> folders;
  std::error_code error;
  for (const fs::path& root : roots) {
    for (const auto& python : fs::directory_iterator(root, error)) {
      if (!python.path().filename().string().starts_with("python3")) continue;
      for (const char* packages : {"site-packages", "dist-packages"}) {
        for (const auto& package : fs::directory_iterator(python.path() / packages / "nvidia", error)) {
          const fs::path lib = package.path() / "lib";
          if (fs::is_directory(lib, error)) folders.push_back(lib);
        }
      }
    }
  }
  return folders;
}

// Makes a library known to the linker by its name, from the system or from a Python environment.
bool preload(const char* name, const std::vector<fs::path>& folders) {
  if (dlopen(name, RTLD_NOW | RTLD_GLOBAL) != nullptr) return true;
  return std::ranges::any_of(folders, [&](const fs::path& folder) {
    std::error_code error;
    return fs::exists(folder / name, error) &&
           dlopen((folder / name).c_str(), RTLD_NOW | RTLD_GLOBAL) != nullptr;
  });
}

// What the plugin links to, in an order in which each finds those it needs; cuDNN loads its parts by name,
// and so does the plugin nvJPEG, where it is.
constexpr const char* kLibraries[] = {"libcuda.so.1",
                                      "libcublasLt.so.13",
                                      "libcublas.so.13",
                                      "libnvrtc.so.13",
                                      "libcudnn_graph.so.9",
                                      "libcudnn_ops.so.9",
                                      "libcudnn_cnn.so.9",
                                      "libcudnn_heuristic.so.9",
                                      "libcudnn_engines_runtime_compiled.so.9",
                                      "libcudnn_engines_precompiled.so.9",
                                      "libcudnn.so.9",
                                      "libnvjpeg.so.13"};

// A function of the plugin by its name, with the libraries that it needs loaded before; NCCL too where there
// are several ranks.
template <typename Function>
Function entry_of(const char* name, bool several) {
  if (const std::string why = why_no_cuda(); !why.empty()) throw UnavailableError("--device cuda: {}", why);
  const std::vector<fs::path> folders = python_library_folders();
  for (const char* needed : kLibraries) {
    // The parts of cuDNN may be absent by name where a system links them otherwise; the plugin's own load
    // tells.
    preload(needed, folders);
  }
  if (several) preload("libnccl.so.2", folders);
  const fs::path plugin = find_plugin();
  void* library = dlopen(plugin.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    throw UnavailableError(
        "--device cuda: {} does not load: {}. It needs CUDA 13's and cuDNN 9's libraries, from the system or "
        "from "
        "the Python packages nvidia-cublas, nvidia-cuda-nvrtc and nvidia-cudnn-cu13",
        plugin.string(), dlerror());
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
