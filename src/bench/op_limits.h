// How close the ops of a step come to the device's limits: to its ceilings, and for memory-bound ops to a
// plain copy of as many bytes.
//
// The memory ceiling is measured on large arrays. An op that moves a few megabytes may stay below it, because
// start and end weigh more, or exceed it thanks to caches. A copy of the same size is affected alike.
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

// The ceiling of arithmetic is no lower than what an op reached: other processes may have had the processors
// while it was measured.
profile::Ceilings at_least_reached(profile::Ceilings ceilings, const std::vector<OpTiming>& ops);

// Fills in least_seconds and memory_bound.
void set_ceilings(std::vector<OpTiming>& ops, const profile::Ceilings& ceilings);

// Fills in copy_seconds of memory-bound ops with the time of the fastest plain copy by all threads, timed
// `repeat` times as the ops were. Within a step, the source was just written and the destination was not;
// alone, it is the same two arrays every time. Half of the bytes are read, half written; each distinct
// copied_bytes() is measured once. What the study refuses stays 0. Returns what was measured so far when
// stopped. Throws InternalError if a copy is wrong.
std::vector<MemoryTiming> time_copies(std::vector<OpTiming>& ops, backend::MemoryStudy& study, int repeat,
                                      bool in_step, const Progress& progress);

// The size of the array to copy for an op that moves `op_bytes`: half of them, rounded to a sixteenth of an
// octave.
std::size_t copied_bytes(double op_bytes);

// Both of the above, for ops that bench_ops timed on this backend with these options; `study` belongs to the
// same device.
OpLimits measure_limits(std::vector<OpTiming>& ops, const OpBenchOptions& options, backend::Backend& backend,
                        backend::MemoryStudy& study, const Progress& progress);

// The ops as a table, with totals below.
std::string op_table(const std::vector<OpTiming>& ops, const OpLimits& limits, const OpBenchOptions& options);
nlohmann::ordered_json op_json(const std::vector<OpTiming>& ops, const OpLimits& limits);

}  // namespace redline::bench
