// How Gloo adds up values of each type.
#pragma once

#include <gloo/math.h>

#include <cstddef>
#include <cstdint>

#include "base/error.h"
#include "comm/communicator.h"
#include "graph/half.h"

namespace redline::comm {

using Sum = void (*)(void* to, const void* a, const void* b, std::size_t count);

template <float (*kToFloat)(std::uint16_t), std::uint16_t (*kFromFloat)(float)>
void sum_halves(void* to, const void* a, const void* b, std::size_t count) {
  auto* sum = static_cast<std::uint16_t*>(to);
  const auto *x = static_cast<const std::uint16_t*>(a), *y = static_cast<const std::uint16_t*>(b);
  for (std::size_t i = 0; i < count; ++i) sum[i] = kFromFloat(kToFloat(x[i]) + kToFloat(y[i]));
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
      return work(static_cast<std::uint16_t*>(values),
                  Sum(sum_halves<graph::f16_to_float, graph::float_to_f16>));
    case Type::bf16:
      return work(static_cast<std::uint16_t*>(values),
                  Sum(sum_halves<graph::bf16_to_float, graph::float_to_bf16>));
  }
  throw InternalError("unknown element type {}", static_cast<int>(type));
}

}  // namespace redline::comm
