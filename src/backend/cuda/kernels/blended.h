// A 1x1 convolution, forward or back, of what is made of two tensors on the way, and what the norm behind it
// wants, in one pass. What is made is written, for others, but not read again here.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "backend/cuda/kernels/kernels.h"

namespace redline::backend::cuda {

struct Blended {
  enum class Kind : std::uint8_t {
    join,  // the end of a block and the next convolution: made = relu(norm(v) + u), u through a norm or not
    gradient  // back through a norm and the convolution in front of it: made = the norm's, of g = u and y = v
  };
  Kind kind = Kind::join;
  Type type = Type::f16;  // f16 or bf16
  std::int64_t rows = 0;
  int wide = 0, narrow = 0;               // channels
  const void *u = nullptr, *v = nullptr;  // [rows, wide]
  void* made = nullptr;                   // as u, and may lie over it
  const void* weights = nullptr;          // join: [narrow][wide]; gradient: [wide][narrow]
  void* out = nullptr;                    // [rows, narrow], not over any input

  // join
  const float *affine = nullptr, *u_affine = nullptr;  // [2, wide] each; of v, and of u where it has a norm
  bool finalizes = false;                              // `affine` is worked out here, from `norm`
  NormFinalize norm{};
  std::uint8_t* mask = nullptr;  // ? a bit per element of `made`: whether it is positive
  float* sums = nullptr;         // [2, narrow]: of what is written, and of its squares

  // gradient: the convolution read relu(affine(y)), and `out` is gated by it
  NormGradApply after{};           // the norm behind the convolution, ungated; its tensors are those above
  const void* before_y = nullptr;  // as out
  const float *before_affine = nullptr, *before_saved = nullptr;  // [2, narrow] each
  float *dgamma = nullptr, *dbeta = nullptr;                      // of the norm before

  // On Hopper.
  static constexpr std::int64_t kMostWide = 1024;
  static bool possible(Kind kind, std::int64_t wide, std::int64_t narrow) {
    return wide % 128 == 0 && wide <= kMostWide &&
           (narrow == 128 || narrow == 256 || (kind == Kind::join && narrow == 64));
  }
};

class BlendedLaunch {
 public:
  BlendedLaunch(const Blended& work, const cudaDeviceProp& device);
  std::size_t partials() const;  // floats of reduce space
  void run(ReduceSpace space, cudaStream_t stream) const;

 private:
  Blended work_;
  CUtensorMap u_{}, v_{}, made_{}, weights_{}, before_{}, out_{};
  int blocks_ = 1;
};

}  // namespace redline::backend::cuda
