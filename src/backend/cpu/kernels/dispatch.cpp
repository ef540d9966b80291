#include "backend/cpu/kernels/dispatch.h"
#include "base/error.h"

namespace redline::backend::cpu {
namespace {

const KernelTables& tables() {
  static const KernelTables& chosen = [&]() -> const KernelTables& {
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512cd")) {
      return v4::kTables;
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2")) {
      return v3::kTables;
    }
    return v2::kTables;
  }();
  return chosen;
}

}  // namespace

const ActivationKernels& activation_kernels(graph::DType dtype) {
  switch (dtype) {
    case graph::DType::f32:
      return tables().f32;
    case graph::DType::bf16:
      return tables().bf16;
    default:
      throw InternalError("the cpu backend has no kernels for {}", name_of(dtype));
  }
}

const UpdateKernels& update_kernels() { return tables().update; }

const PackKernels& pack_kernels() { return tables().pack; }

const char* kernel_isa() { return tables().isa; }

}  // namespace redline::backend::cpu
