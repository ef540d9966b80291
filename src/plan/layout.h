// How the elements of a tensor lie in memory, and how to get them in and out in plain order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "graph/tensor.h"

namespace redline::plan {

enum class Layout : std::uint8_t {
  plain,           // row-major in logical order: NCHW, OIHW
  channels_last,   // NHWC; weights OHWI
  channels_last4,  // the same with channels padded to a multiple of four, for images
  folded,     // images in squares of 2x2 pixels, with channels padded to four and a margin of two squares
              // before and one after: N,(H+1)/2+3,(W+1)/2+3,(2,2,4). On them, a 7x7 convolution of stride two
              // is a 4x4 of stride one without padding. Its weights: O,4,4,(2,2,4), tap r of seven at r + 1
              // of eight
  blocked16,  // activations in blocks of 16 channels, the block innermost: N,C/16,H,W,16c
  weights16,  // convolution weights as the CPU's kernels read them: O/16,I/16,H,W,16i,16o, or, with fewer
              // than 16 input channels, O/16,H,W,I,16o
  // Blocks are padded with zeros, and every op keeps the padding at zero.
};

std::string_view name_of(Layout layout);

// Elements as stored, padding included.
std::int64_t stored_elements(const graph::Shape& shape, Layout layout);
std::size_t stored_bytes(const graph::Tensor& tensor, Layout layout);

// Convert between plain fp32 values and a tensor as stored. Not for hot paths: tests, initialisation,
// checkpoints. `store` writes zeros into padding.
void store(const graph::Tensor& tensor, Layout layout, std::span<const float> values, std::byte* memory);
void load(const graph::Tensor& tensor, Layout layout, const std::byte* memory, std::span<float> values);

}  // namespace redline::plan
