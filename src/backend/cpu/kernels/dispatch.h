// Which build of the kernels runs on this machine.
#pragma once

#include "backend/cpu/kernels/kernels.h"
#include "graph/tensor.h"

namespace redline::backend::cpu {

// The best tables that this CPU can run. dtype is f32 or bf16.
const ActivationKernels& activation_kernels(graph::DType dtype);
const UpdateKernels& update_kernels();
const PackKernels& pack_kernels();
// "x86-64-v4" and so on: what was chosen.
const char* kernel_isa();

}  // namespace redline::backend::cpu
