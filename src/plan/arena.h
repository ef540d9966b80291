// Lifetimes and the arena: which tensors share memory.
#pragma once

#include <cstddef>

#include "plan/plan.h"

namespace redline::plan {

inline constexpr std::size_t kAlignment = 64;  // bytes; a cache line and a vector register

// Fills the placements of a plan whose graph is final: lifetimes, in-place outputs, offsets, buckets.
// With `keep_all` no two tensors share memory, so that all can be read after a run.
void place_tensors(Plan& plan, const Capabilities& backend, std::size_t bucket_bytes, bool keep_all);

}  // namespace redline::plan
