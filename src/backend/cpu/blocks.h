// A blocked activation cut into pieces of work: each piece is one channel block of some images. The cut
// depends on the shape alone, so sums come out the same for any number of threads.
#pragma once

#include <algorithm>
#include <cstdint>

#include "backend/cpu/kernels/kernels.h"
#include "graph/tensor.h"

namespace redline::backend::cpu {

inline constexpr std::int64_t kBlock = 16;

struct Blocks {
  std::int64_t images, channels, blocks, pixels;
  std::int64_t groups;  // pieces per channel block

  explicit Blocks(const graph::Shape& shape)
      : images(shape.n()),
        channels(shape.c()),
        blocks((shape.c() + kBlock - 1) / kBlock),
        pixels(shape.h() * shape.w()) {
    constexpr std::int64_t kPieceElements = 1 << 17;  // large enough to forget the cost of a task
    groups = std::clamp<std::int64_t>(images * pixels * kBlock / kPieceElements, 1, images);
  }

  std::int64_t pieces() const { return blocks * groups; }
  std::int64_t per_channel() const { return images * pixels; }  // elements of one channel
};

// One piece: which block, and where its first element and pixel lie.
struct Piece {
  std::int64_t block, element, pixel;
  Run run;

  Piece(const Blocks& b, std::int64_t index) : block(index / b.groups) {
    const std::int64_t group = index % b.groups;
    const std::int64_t first = b.images * group / b.groups, last = b.images * (group + 1) / b.groups;
    pixel = (first * b.blocks + block) * b.pixels;
    element = pixel * kBlock;
    run = {last - first, b.pixels, b.blocks * b.pixels * kBlock};
  }
};

// Sixteen values of a per-channel array, zero beyond its end.
struct Lanes {
  alignas(64) float values[kBlock] = {};

  Lanes() = default;
  Lanes(const float* array, std::int64_t block, std::int64_t channels) {
    const std::int64_t first = block * kBlock, count = std::min(kBlock, channels - first);
    std::copy_n(array + first, count, values);
  }
  operator const float*() const { return values; }
};

}  // namespace redline::backend::cpu
