// Repacking of weight tiles; see kernels.h. Included by kernels.cpp.
#pragma once

#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/vec.h"

namespace redline::backend::cpu {
namespace {

// Two fp32 rows as one row of bf16 pairs: low halves from `first`, high halves from `second`.
inline void store_pairs(Bf16* to, V first, V second) {
  Bf16 low[kLanes], high[kLanes];
  store(low, first);
  store(high, second);
  VH a, b;
  memcpy(&a, low, sizeof a);
  memcpy(&b, high, sizeof b);
  const VU pairs = __builtin_convertvector(a, VU) | (__builtin_convertvector(b, VU) << 16);
  memcpy(to, &pairs, sizeof pairs);
}

inline void transpose(const float* tile, float* out) {
  for (int row = 0; row < kLanes; ++row) {
    for (int column = 0; column < kLanes; ++column) out[column * kLanes + row] = tile[row * kLanes + column];
  }
}

void pack_f32_transposed(const float* tile, void* out) { transpose(tile, static_cast<float*>(out)); }

void pack_bf16(const float* tile, void* out_) {
  Bf16* out = static_cast<Bf16*>(out_);
  for (int row = 0; row < kLanes; row += 2) {
    store_pairs(out + row * kLanes, load(tile + row * kLanes), load(tile + (row + 1) * kLanes));
  }
}

void pack_bf16_transposed(const float* tile, void* out) {
  float transposed[kLanes * kLanes];
  transpose(tile, transposed);
  pack_bf16(transposed, out);
}

constexpr PackKernels pack_table() { return {pack_f32_transposed, pack_bf16, pack_bf16_transposed}; }

}  // namespace
}  // namespace redline::backend::cpu
