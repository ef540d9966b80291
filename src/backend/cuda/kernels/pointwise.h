// 1x1 convolutions of stride one as matrix products whose epilogue does the neighbouring norm's work, for
// Hopper's copy engine and matrix units. Training is bound by memory: each of these spares a pass over a
// tensor that a separate kernel would read again.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/cuda/kernels/kernels.h"

namespace redline::backend::cuda {

enum class Epilogue : std::uint8_t {
  sums,   // forward: the output, and the sums of it and of its squares
  gated,  // gradient of an input that is relu(affine(y)): gated, with the norm's two sums
  joined  // gradient of a block's output: plus the other branch's, gated by bits, with the norm's two sums
};

// out[rows, n] = a[rows, k] * b, then the epilogue. k and n are multiples of 64.
struct Pointwise {
  Type type = Type::f16;  // f16 or bf16
  Epilogue epilogue = Epilogue::sums;
  std::int64_t rows = 0;
  int k = 0, n = 0;
  const void* a = nullptr;
  const void* b = nullptr;  // sums: [n][k]; otherwise [k][n]
  void* out = nullptr;      // may be `other`; not `y`
  // gated, joined
  const void* y = nullptr;        // the norm's input, as `out`
  const float* saved = nullptr;   // [2, n]: mean, 1 / deviation
  const float* affine = nullptr;  // gated: [2, n]
  // joined
  const void* other = nullptr;         // the other branch's gradient
  const std::uint8_t* mask = nullptr;  // a bit per element of `out`
  // sums: [2, n] of the values and their squares. Otherwise dbeta and dgamma, [n] each.
  float *first = nullptr, *second = nullptr;

  // On Hopper: the block's columns of b and two stages of each ring fit in shared memory.
  static constexpr std::int64_t kTile = 64;
  static bool possible(Epilogue epilogue, std::int64_t k, std::int64_t n) {
    return k % kTile == 0 && n % kTile == 0 && n / kTile <= static_cast<std::int64_t>(kReduceCounters) &&
           k <= (epilogue == Epilogue::joined ? 960 : 1216);
  }
};

// A launch made ready: tiles described to the copy engine, ring sizes chosen.
class PointwiseLaunch {
 public:
  // Several blocks on a multiprocessor overlap each other's work, one has deeper rings; a block of two strips
  // of 64 columns reads a half as often.
  struct Way {
    int blocks_each = 1, strips = 1;
  };
  // Empty where device or shape do not allow the kernel.
  static std::vector<Way> ways(const Pointwise& work, const cudaDeviceProp& device);

  PointwiseLaunch(const Pointwise& work, const cudaDeviceProp& device, const Way& way);
  std::size_t partials() const;  // floats of reduce space
  void run(ReduceSpace space, cudaStream_t stream) const;

 private:
  Pointwise work_;
  Way way_;
  CUtensorMap a_{}, b_{}, y_{}, other_{}, out_{};
  int a_stages_ = 2, tile_stages_ = 2;
  int blocks_ = 1;  // that share the rows
  std::size_t shared_bytes_ = 0;
};

}  // namespace redline::backend::cuda
