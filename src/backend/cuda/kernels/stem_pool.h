// The pool of a stem: 3x3, stride 2, pad 1.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cuda/kernels/kernels.h"

namespace redline::backend::cuda {

inline Pool pool_of(const graph::Shape& in, const graph::Shape& out, const graph::PoolAttr& attr) {
  const auto size = [](std::int64_t value) { return static_cast<int>(value); };
  return {size(in.n()),  size(in.c()), size(in.h()), size(in.w()), size(out.h()),
          size(out.w()), attr.kernel,  attr.stride,  attr.pad};
}

// A thread's vector of 16 bytes is the same in every column, and strips are small enough to count.
inline bool is_stem_pool(const Pool& p, std::size_t element_bytes) {
  const int vector = 16 / static_cast<int>(element_bytes);
  return p.kernel == 3 && p.stride == 2 && p.pad == 1 && p.channels % vector == 0 &&
         32 % (p.channels / vector) == 0 &&
         std::int64_t{p.images} * p.out_h * p.out_w * p.channels < std::int64_t{1} << 32;
}

// Whether pooled_norm_grad_apply can do it.
inline bool is_even_stem_pool(const Pool& p, std::size_t element_bytes) {
  return is_stem_pool(p, element_bytes) && p.h == 2 * p.out_h && p.w == 2 * p.out_w;
}

}  // namespace redline::backend::cuda
