// Splitting a flat array into shares for threads.
#pragma once

#include <algorithm>
#include <cstdint>

#include "backend/cpu/threads.h"

namespace redline::backend::cpu {

inline constexpr std::int64_t kShare = 1 << 16;  // elements; a multiple of every vector length

inline std::int64_t shares(std::int64_t count) { return (count + kShare - 1) / kShare; }

// Runs body(first element, element count) over shares of [0, count).
template <typename Body>
void parallel_flat(std::int64_t count, const Body& body) {
  parallel_for(shares(count), [&](std::int64_t share) {
    const std::int64_t first = share * kShare;
    body(first, std::min(kShare, count - first));
  });
}

}  // namespace redline::backend::cpu
