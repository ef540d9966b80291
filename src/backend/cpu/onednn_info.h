// Facts about the oneDNN in use, without its headers: for --version, `redline doctor` and run records.
#pragma once

#include <string>

namespace redline::backend {

struct OneDnnInfo {
  std::string version;       // "2.6.3", of the library loaded now
  std::string isa;           // the best instruction set its kernels use here: "avx512_core_bf16"
  bool avx512 = false;       // it has its AVX-512 kernels: those for 16-channel blocks, and all of bf16
  bool native_bf16 = false;  // bf16 kernels run on bf16 instructions instead of being emulated
};

// Fixes oneDNN's choice of instruction set for the process, as any first use of it does.
OneDnnInfo onednn_info();

}  // namespace redline::backend
