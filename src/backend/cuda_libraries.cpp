#include "backend/cuda_libraries.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <system_error>

#include <fmt/format.h>

#include "base/error.h"
#include "base/process.h"

namespace redline::backend {
namespace {

namespace fs = std::filesystem;

constexpr const char* kNccl = "libnccl.so.2";

// The folders of libraries in <packages>/nvidia, where NVIDIA's Python packages keep them.
void add_packages(const fs::path& packages, std::vector<fs::path>& folders) {
  std::error_code error;
  for (const auto& package : fs::directory_iterator(packages / "nvidia", error)) {
    const fs::path lib = package.path() / "lib";
    if (fs::is_directory(lib, error)) folders.push_back(lib);
  }
}

// For every Python of an environment, given its lib/.
void add_environment(const fs::path& lib, std::vector<fs::path>& folders) {
  std::error_code error;
  for (const auto& python : fs::directory_iterator(lib, error)) {
    if (!python.path().filename().string().starts_with("python3")) continue;
    for (const char* packages : {"site-packages", "dist-packages"})
      add_packages(python.path() / packages, folders);
  }
}

void* load(const fs::path& library) { return dlopen(library.c_str(), RTLD_NOW | RTLD_GLOBAL); }

// Loads a library with all its parts from one place; returns whether it was found.
bool load_from(const fs::path& place, const CudaLibrary& library) {
  std::error_code error;
  if (!place.empty() && !fs::exists(place / library.name, error)) return false;
  // A part may be missing under this name if a system links it differently.
  for (const char* part : library.before) load(place / part);
  return load(place / library.name) != nullptr;
}

}  // namespace

const std::vector<CudaLibrary>& cuda_libraries() {
  static const std::vector<CudaLibrary> libraries = {
      {"the driver's library", "libcuda.so.1", "", true, {}},
      {"cuBLAS 13", "libcublas.so.13", "nvidia-cublas", true, {"libcublasLt.so.13"}},
      {"NVRTC 13", "libnvrtc.so.13", "nvidia-cuda-nvrtc", true, {}},
      {"cuDNN 9",
       "libcudnn.so.9",
       "nvidia-cudnn-cu13",
       true,
       {"libcudnn_graph.so.9", "libcudnn_ops.so.9", "libcudnn_cnn.so.9", "libcudnn_heuristic.so.9",
        "libcudnn_engines_runtime_compiled.so.9", "libcudnn_engines_precompiled.so.9"}},
      {"nvJPEG 13", "libnvjpeg.so.13", "nvidia-nvjpeg", false, {}},
      {"NCCL 2", kNccl, "nvidia-nccl-cu13", false, {}}};
  return libraries;
}

std::vector<fs::path> cuda_library_places() {
  std::vector<fs::path> places;
  const fs::path program = program_folder();
  // In a wheel the program is <packages>/redline_train/bin/redline; ./redline keeps its downloads next to its
  // build.
  if (!program.empty()) {
    add_packages(program.parent_path().parent_path(), places);
    add_environment(program.parent_path() / "cuda-toolkit/lib", places);
  }
  places.emplace_back();
  for (const char* variable : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    if (const char* value = std::getenv(variable)) add_environment(fs::path(value) / "lib", places);
  }
  if (const char* home = std::getenv("HOME")) add_environment(fs::path(home) / ".local/lib", places);
  add_environment("/usr/local/lib", places);
  add_environment("/usr/lib", places);
  return places;
}

std::vector<fs::path> find_cuda_library(const char* name) {
  std::vector<fs::path> found;
  const auto add = [&](const fs::path& file) {
    std::error_code error;
    const fs::path real = fs::canonical(file, error);
    if (!error && std::ranges::find(found, real) == found.end()) found.push_back(real);
  };
  for (const fs::path& place : cuda_library_places()) {
    if (!place.empty()) {
      add(place / name);
    } else if (void* library = dlopen(name, RTLD_LAZY | RTLD_LOCAL)) {
      link_map* map = nullptr;
      if (dlinfo(library, RTLD_DI_LINKMAP, &map) == 0) add(map->l_name);
      dlclose(library);
    }
  }
  return found;
}

void load_cuda_libraries(bool several) {
  const std::vector<fs::path> places = cuda_library_places();
  std::string missing, packages;
  for (const CudaLibrary& library : cuda_libraries()) {
    if (std::strcmp(library.name, kNccl) == 0 && !several) continue;
    const bool loaded =
        std::ranges::any_of(places, [&](const fs::path& place) { return load_from(place, library); });
    if (loaded || !library.required) continue;
    missing += fmt::format("{}{} ({})", missing.empty() ? "" : ", ", library.title, library.name);
    if (library.package[0] != '\0') packages += fmt::format(" {}", library.package);
  }
  if (missing.empty()) return;
  throw UnavailableError(
      "--device cuda: the CUDA backend needs {}, which cannot be loaded here: run 'pip install{}' in the "
      "active environment, or install CUDA 13 and cuDNN 9 from NVIDIA's repository",
      missing, packages);
}

}  // namespace redline::backend
