#include "backend/cpu/pack.h"

#include <cstdint>

#include "backend/cpu/kernels/dispatch.h"
#include "backend/cpu/threads.h"

namespace redline::backend::cpu {
namespace {

using dnnl::memory;
using tag = memory::format_tag;

constexpr std::int64_t kSide = 16;
constexpr std::int64_t kTile = kSide * kSide;  // elements

struct Form {
  tag format;
  memory::data_type type;
  void (*PackKernels::*kernel)(const float*, void*);
  bool inputs_first;  // tiles ordered by input block, then output block
};

// a is the output channel and b the input channel; masters are ABcd16b16a.
constexpr Form kForms[] = {
    {tag::ABcd16a16b, memory::data_type::f32, &PackKernels::f32_transposed, false},
    {tag::BAcd16a16b, memory::data_type::f32, &PackKernels::f32_transposed, true},
    {tag::ABcd8b16a2b, memory::data_type::bf16, &PackKernels::bf16, false},
    {tag::ABcd8a16b2a, memory::data_type::bf16, &PackKernels::bf16_transposed, false},
    {tag::BAcd8a16b2a, memory::data_type::bf16, &PackKernels::bf16_transposed, true},
};

}  // namespace

std::optional<Pack> find_pack(const graph::Shape& weights, const memory::desc& wanted) {
  if (weights[0] % kSide != 0 || weights[1] % kSide != 0) return std::nullopt;
  for (const Form& form : kForms) {
    if (memory::desc({weights[0], weights[1], weights[2], weights[3]}, form.type, form.format) != wanted)
      continue;
    const std::int64_t outputs = weights[0] / kSide, inputs = weights[1] / kSide,
                       window = weights[2] * weights[3];
    const std::size_t tile_bytes = kTile * (form.type == memory::data_type::f32 ? 4 : 2);
    return [=, kernel = pack_kernels().*form.kernel](const std::byte* master, std::byte* packed) {
      parallel_for(outputs * inputs, [&](std::int64_t block) {
        const std::int64_t o = block / inputs, i = block % inputs;
        const std::int64_t to = form.inputs_first ? i * outputs + o : block;
        for (std::int64_t at = 0; at < window; ++at) {
          kernel(reinterpret_cast<const float*>(master) + (block * window + at) * kTile,
                 packed + static_cast<std::size_t>(to * window + at) * tile_bytes);
        }
      });
    };
  }
  return std::nullopt;
}

}  // namespace redline::backend::cpu
