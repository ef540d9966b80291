// How Gloo adds up values of each type.
#pragma once

#include <gloo/math.h>

#include <cstddef>
#include <cstdint>

#include "base/error.h"
#include "comm/communicator.h"
#include "graph/half_arrays.h"

namespace redline::comm {

using Sum = void (*)(void* to, const void* a, const void* b, std::size_t count);

template <graph::DType kType>
void sum_halves(void* to, const void* a, const void* b, std::size_t count) {
  graph::add_halves(kType, static_cast<const std::uint16_t*>(a), static_cast<const std::uint16_t*>(b),
                    static_cast<std::uint16_t*>(to), count);
}

// Calls work(pointer of the type that Gloo takes the values for, how to add them).
template <typename Work>
void with_sum(Type type, void* values, const Work& work) {
  switch (type) {
    case Type::f32:
      return work(static_cast<float*>(values), Sum(gloo::sum<float>));
    case Type::f64:
      return work(static_cast<double*>(values), Sum(gloo::sum<double>));
    case Type::f16:
      return work(static_cast<std::uint16_t*>(values), Sum(sum_halves<graph::DType::f16>));
    case Type::bf16:
      return work(static_cast<std::uint16_t*>(values), Sum(sum_halves<graph::DType::bf16>));
  }
  throw InternalError("unknown element type {}", static_cast<int>(type));
}

}  // namespace redline::comm
