// Finds the libraries that the CUDA plugin needs: next to the program, where a wheel's extras install them,
// on the system, or in a Python environment.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace redline::backend {

// An NVIDIA library with the parts that it loads by name, which must all come from one installation.
struct CudaLibrary {
  const char* title;                // "cuDNN 9"
  const char* name;                 // "libcudnn.so.9"
  const char* package;              // the Python package that has it: "nvidia-cudnn-cu13"
  bool required;                    // by the plugin; others are needed for single features
  std::vector<const char*> before;  // parts to be loaded first, each after those that it needs
};
const std::vector<CudaLibrary>& cuda_libraries();

// The folders to search, in order; an empty path stands for the system's own search.
std::vector<std::filesystem::path> cuda_library_places();

// Every file of that name in those places, in search order: load_cuda_libraries takes the first. Nothing
// stays loaded.
std::vector<std::filesystem::path> find_cuda_library(const char* name);

// Loads the libraries, so that the linker finds them by name; `several`: for several ranks. Throws
// UnavailableError, with the packages to install, if a required one is missing.
void load_cuda_libraries(bool several);

}  // namespace redline::backend
