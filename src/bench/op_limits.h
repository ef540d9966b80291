// How near the ops of a step come to what the device can do: to its ceilings, and, where memory bounds them,
// to a plain copy that moves as many bytes.
//
// The ceiling of memory is that of large arrays. What moves a few megabytes cannot reach it, as starting and
// ending weigh more, or caches carry it beyond. A copy of the same size has the same handicaps and helps.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "bench/memory_bench.h"
#include "bench/op_bench.h"
#include "profile/ceilings.h"

namespace redline::bench {

struct OpLimits {
  profile::Ceilings ceilings;
  std::vector<MemoryTiming> copies;  // each plain copy at each size
};

// Fills in least_seconds and memory_bound.
void set_ceilings(std::vector<OpTiming>& ops, const profile::Ceilings& ceilings);

// Fills in copy_seconds of the ops that memory bounds, by the fastest of the plain copies that all threads
// do, each timed `repeat` times as the ops were: within a step what is read was just written and what is
// written was not, alone it is the same two arrays every time. Half of the bytes are read, half are written;
// each distinct copied_bytes() is measured once. What the study refuses stays 0; gives what was measured so
// far when stopped. Throws InternalError when a copy is wrong.
std::vector<MemoryTiming> time_copies(std::vector<OpTiming>& ops, backend::MemoryStudy& study, int repeat,
                                      bool in_step, const Progress& progress);

// The array whose copy stands for an op that moves so many bytes: half of them, to a sixteenth of an octave.
std::size_t copied_bytes(double op_bytes);

// Both, for ops that bench_ops timed on this backend with these options; `study` is of the same device.
OpLimits measure_limits(std::vector<OpTiming>& ops, const OpBenchOptions& options, backend::Backend& backend,
                        backend::MemoryStudy& study, const Progress& progress);

// The ops as a table, with what they come to below it.
std::string op_table(const std::vector<OpTiming>& ops, const OpLimits& limits, const OpBenchOptions& options);
nlohmann::ordered_json op_json(const std::vector<OpTiming>& ops, const OpLimits& limits);

}  // namespace redline::bench
