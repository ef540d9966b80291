// Weights from the fp32 masters' layout into the forms that oneDNN's kernels read. oneDNN can do it too; for
// these few forms, which are all that a ResNet needs on AVX-512, this is several times faster.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>

#include <oneapi/dnnl/dnnl.hpp>

#include "graph/tensor.h"

namespace redline::backend::cpu {

using Pack = std::function<void(const std::byte* master, std::byte* packed)>;

// How to get weights of this shape, stored as weights16, into the form `wanted`; nothing when the form is
// another.
std::optional<Pack> find_pack(const graph::Shape& weights, const dnnl::memory::desc& wanted);

}  // namespace redline::backend::cpu
