// 1x1 convolutions of stride one and their input gradients as one GEMM for Hopper, fused with the batch norms
// around them. Training is bound by memory, and each fusion saves a pass over a tensor: the prologue computes
// the A operand from what earlier ops stored, and the epilogue works on the product before it is stored.
//
//     out[rows, n] = epilogue(prologue(a)[rows, k] * b)
//
// The table kGemmForms lists the combinations that are built; a new one is a row there.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/tile_launch.h"

namespace redline::backend::cuda {

enum class Prologue : std::uint8_t {
  none,      // a itself
  activate,  // made = relu(norm(a)); stored if `made` is not null
  join,      // the end of a block: made = relu(norm(a) + a2), or relu(norm(a) + norm2(a2))
  norm_grad  // the gradient of the norm after the convolution: made = dy, from g = a2 and y = a
};
enum class Epilogue : std::uint8_t {
  sums,             // forward: the output, with the sums of it and of its squares for the next norm
  gated,            // gradient: zero where affine(y) <= 0, with the two sums for that norm's gradient
  joined,           // gradient at the end of a block: `other` is added first, and a mask is the gate
  joined_sparse,    // joined, where `other` has only every second pixel, and is zero elsewhere
  joined_two_norms  // joined, with the sums of the shortcut's norm too
};

// A tensor that has only the pixels in even rows and columns of each image. A row of the GEMM is a pixel.
struct SparseRows {
  int h = 0, w = 0;                                // of an image; four or more
  static constexpr int kMost = 72;                 // the most that it has of 128 consecutive rows
  static constexpr unsigned kBytes = kMost * 128;  // of a tile of so many rows

  __host__ __device__ bool has(int row) const { return row % w % 2 == 0 && row / w % h % 2 == 0; }
  // How many of the rows before this one it has. If it has this one too, that is where it lies.
  __host__ __device__ int before(int row) const {
    const int x = row % w, y = row / w % h, image = row / w / h, half_w = (w + 1) / 2;
    return (image * ((h + 1) / 2) + (y + 1) / 2) * half_w + (y % 2 == 0 ? (x + 1) / 2 : 0);
  }
};

struct Gemm {
  Type type = Type::f16;  // f16 or bf16
  Prologue prologue = Prologue::none;
  Epilogue epilogue = Epilogue::sums;
  std::int64_t rows = 0;
  int k = 0, n = 0;         // multiples of 64
  const void* a = nullptr;  // [rows, k]
  const void* b = nullptr;  // sums: [n][k]; otherwise [k][n]
  void* out = nullptr;      // [rows, n]. May be `other`; overlaps no other operand

  // activate, join: the norm of a, computed from its sums if `finalizes`, else given as `affine`.
  bool finalizes = false;
  NormFinalize norm{};
  const float* affine = nullptr;  // [2, k]
  void* made = nullptr;           // as a; activate: ? May be a2 where one block has all columns
  // join, norm_grad
  const void* a2 = nullptr;           // as a
  const float* a2_affine = nullptr;   // join: ? [2, k], if the shortcut has a norm of its own
  std::uint8_t* made_mask = nullptr;  // join: ? a bit per element of `made`: whether it is positive
  NormGradApply after{};              // norm_grad: the norm, ungated; its y, g and dy are those above

  float* sums = nullptr;        // sums: [2, n], of the values and of their squares
  GatedNorm before{};           // gated: the norm that the gradient reaches, by affine; joined: by mask
  const void* other = nullptr;  // joined: the other branch's gradient, as out
  SparseRows sparse{};          // joined_sparse: the only rows that `other` has
  GatedNorm shortcut{};         // joined_two_norms: the shortcut's norm; gated as `before`
};

// A combination that is built: a block computes `columns` columns of `out`, 128 rows at a time.
struct GemmForm {
  Prologue prologue;
  Epilogue epilogue;
  int columns;
  // Whether a block keeps its columns of b in shared memory. Otherwise b is read again for every 128 rows, by
  // the ring; a block then has all columns, and a is read once.
  bool resident;
  // Tiles in which products are put in order for the store, used in turn; with more, warps wait less for
  // their stores, but the ring is shorter. Gradients need none: they use the place of y in the ring.
  int staging = epilogue != Epilogue::sums ? 0 : columns > 64 ? 2 : 1;
  bool operator==(const GemmForm&) const = default;

  static constexpr std::size_t kTileBytes = 128 * 64 * 2;
  // Stages of the ring: consumers hold up to three while they wait for the next.
  static constexpr int kFewestStages = 4, kMostStages = 12;
  constexpr std::size_t b_bytes(std::int64_t k) const {
    return resident ? static_cast<std::size_t>(k * columns) * 2 : 0;
  }
  constexpr std::size_t table_bytes(std::int64_t k) const {
    constexpr int kFloats[] = {0, 2, 3, 3};  // per channel of a, by prologue
    return static_cast<std::size_t>(k * kFloats[static_cast<int>(prologue)]) * sizeof(float);
  }
  // Dynamic shared memory of a block whose ring has so many stages.
  constexpr std::size_t shared_bytes(std::int64_t k, int stages) const {
    constexpr std::size_t kAlignment = 1024;
    return kAlignment + static_cast<std::size_t>(stages + staging) * kTileBytes + b_bytes(k) + table_bytes(k);
  }
  // The stages that fit if a block can have `shared` bytes of shared memory; 0 if that is too little.
  constexpr int stages(std::int64_t k, std::size_t shared) const {
    constexpr std::size_t kStatic = 1024;  // at most, of the kernel itself
    for (int fit = kMostStages; fit >= kFewestStages; --fit) {
      if (shared_bytes(k, fit) + kStatic <= shared) return fit;
    }
    return 0;
  }
  // The norms whose sums are reduced: for each, 2 * n floats per block, and a counter per column of blocks.
  constexpr int reduce_spaces() const { return epilogue == Epilogue::joined_two_norms ? 2 : 1; }
  // Blocks per multiprocessor: two if registers allow it.
  constexpr int most_blocks() const { return prologue == Prologue::none && columns == 64 ? 2 : 1; }
  constexpr bool matches(Prologue of_prologue, Epilogue of_epilogue, std::int64_t k, std::int64_t n) const {
    return prologue == of_prologue && epilogue == of_epilogue && k % 64 == 0 &&
           (resident ? n % columns == 0 : n == columns) &&
           n / columns * reduce_spaces() <= std::int64_t{kReduceCounters};
  }
};

// clang-format off
inline constexpr GemmForm kGemmForms[] = {
    // Forward.
    {Prologue::none, Epilogue::sums, 128, true},
    {Prologue::none, Epilogue::sums, 64, true},
    {Prologue::none, Epilogue::sums, 256, true},
    {Prologue::activate, Epilogue::sums, 256, true},
    {Prologue::activate, Epilogue::sums, 128, true},
    {Prologue::join, Epilogue::sums, 64, false},
    {Prologue::join, Epilogue::sums, 128, false},
    {Prologue::join, Epilogue::sums, 256, false},
    {Prologue::none, Epilogue::sums, 256, true, 4},
    {Prologue::activate, Epilogue::sums, 256, true, 4},
    {Prologue::join, Epilogue::sums, 256, false, 4},
    // Back to the input.
    {Prologue::none, Epilogue::gated, 128, true},
    {Prologue::none, Epilogue::gated, 64, true},
    {Prologue::norm_grad, Epilogue::gated, 128, false},
    {Prologue::norm_grad, Epilogue::gated, 256, false},
    {Prologue::none, Epilogue::joined, 128, true},
    {Prologue::none, Epilogue::joined, 64, true},
    {Prologue::none, Epilogue::joined_sparse, 128, true},
    {Prologue::none, Epilogue::joined_sparse, 64, true},
    {Prologue::none, Epilogue::joined_two_norms, 128, true},
    {Prologue::none, Epilogue::joined_two_norms, 64, true},
};
// clang-format on

// Whether there is a candidate for such a GEMM on a Hopper GPU.
constexpr bool has_gemm(Prologue prologue, Epilogue epilogue, std::int64_t k, std::int64_t n) {
  constexpr std::size_t kShared = 227 << 10;
  for (const GemmForm& form : kGemmForms) {
    if (form.matches(prologue, epilogue, k, n) && form.stages(k, kShared) > 0) return true;
  }
  return false;
}

// A candidate. Two blocks on a multiprocessor hide each other's waits; one alone has a deeper ring.
struct GemmCandidate {
  GemmForm form;
  int blocks_each = 1;  // on a multiprocessor
};
// Those that the device and the shape allow, the one that is usually the fastest first.
std::vector<GemmCandidate> gemm_candidates(const Gemm& work, const cudaDeviceProp& device);
TileLaunch gemm(const Gemm& work, const cudaDeviceProp& device, const GemmCandidate& candidate);

// The gradients of a 1x1 convolution that expands 64 channels to 256, and of the norm after it, in one pass:
// the last convolution of a bottleneck block of the first stage, where images are largest. The gradient of
// the convolution's output, four times as large as its input, never goes through memory. It is not one of the
// GEMM's forms because each tile of that gradient contributes to both dx and dw.
struct ExpandGrad {
  static constexpr int kFrom = 64, kTo = 256;  // channels

  Type type = Type::f16;  // f16 or bf16
  std::int64_t rows = 0;
  NormGradApply norm{};           // after the convolution, ungated: [rows, kTo]. Its dy is not written
  const void* x = nullptr;        // [rows, kFrom]: what the convolution read; not used with `before`
  const void* weights = nullptr;  // [kTo][kFrom]
  void* dx = nullptr;             // as x; not over any input
  void* dw = nullptr;             // as the weights
  Type dw_type = Type::f16;
  GatedNorm before{};  // the norm that dx reaches, which gates it; its y is null if there is none
};

TileLaunch expand_grad(const ExpandGrad& work, const cudaDeviceProp& device);

}  // namespace redline::backend::cuda
