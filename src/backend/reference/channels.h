// Walking an activation [N,C,H,W] channel by channel, as every batch norm does.
#pragma once

#include <cstddef>

#include "graph/tensor.h"

namespace redline::backend::reference {

struct Channels {
  std::size_t batch, channels, plane;

  explicit Channels(const graph::Shape& shape)
      : batch(static_cast<std::size_t>(shape.n())),
        channels(static_cast<std::size_t>(shape.c())),
        plane(static_cast<std::size_t>(shape.h() * shape.w())) {}

  double count() const { return static_cast<double>(batch * plane); }  // elements of one channel

  // Calls visit(offset) for every element of channel c.
  template <typename Visit>
  void for_each(std::size_t c, Visit&& visit) const {
    for (std::size_t n = 0; n < batch; ++n) {
      const std::size_t first = (n * channels + c) * plane;
      for (std::size_t p = 0; p < plane; ++p) visit(first + p);
    }
  }
};

}  // namespace redline::backend::reference
