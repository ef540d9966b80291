// Compiled once per instruction set, with REDLINE_ISA naming the namespace of its tables.
#include "backend/cpu/kernels/activation.h"
#include "backend/cpu/kernels/pack.h"
#include "backend/cpu/kernels/update.h"

#define REDLINE_TEXT(name) #name
#define REDLINE_NAME(name) REDLINE_TEXT(name)

namespace redline::backend::cpu::REDLINE_ISA {

const KernelTables kTables = {"x86-64-" REDLINE_NAME(REDLINE_ISA), activation_table<float>(),
                              activation_table<Bf16>(), update_table(), pack_table()};

}  // namespace redline::backend::cpu::REDLINE_ISA
