// Finds the libraries that the CUDA plugin needs: beside the program, as a wheel's extras put them, on the
// system, or in a Python environment.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace redline::backend {

// A library of NVIDIA's with the parts that it loads by name, which must all be of one installation.
struct CudaLibrary {
  const char* title;                // "cuDNN 9"
  const char* name;                 // "libcudnn.so.9"
  const char* package;              // of Python, that has it: "nvidia-cudnn-cu13"
  bool required;                    // by the plugin; the others are for some of what it does
  std::vector<const char*> before;  // parts, in an order in which each finds those it needs
};
const std::vector<CudaLibrary>& cuda_libraries();

// The folders that are looked in, the first first; one that is empty stands for the system's own search.
std::vector<std::filesystem::path> cuda_library_places();

// Every file of that name in those places, as the search goes: the first is the one that load_cuda_libraries
// takes. Nothing stays loaded.
std::vector<std::filesystem::path> find_cuda_library(const char* name);

// Makes the libraries known to the linker by their names, `several` for several ranks. Throws
// UnavailableError, with the packages to install, when one is missing that the plugin cannot do without.
void load_cuda_libraries(bool several);

}  // namespace redline::backend
