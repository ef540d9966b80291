// Repacks weights from the layout of the fp32 masters into the forms that oneDNN's kernels read. oneDNN can
// do this too, but for these few forms, all that a ResNet needs on AVX-512, this code is several times
// faster.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>

#include <oneapi/dnnl/dnnl.hpp>

#include "graph/tensor.h"

namespace redline::backend::cpu {

using Pack = std::function<void(const std::byte* master, std::byte* packed)>;

// How to repack weights of this shape, stored as weights16, into the form `wanted`; nothing for other forms.
std::optional<Pack> find_pack(const graph::Shape& weights, const dnnl::memory::desc& wanted);

}  // namespace redline::backend::cpu
