// How fast bytes move: every method of a backend's memory study, by size, compared with a plain copy in the
// same run.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "backend/memory_study.h"
#include "base/statistics.h"
#include "bench/chart.h"

namespace redline::bench {

struct MemoryBenchOptions {
  std::vector<std::size_t> sizes;  // bytes, multiples of 4 KiB
  int repeat = 20;                 // timed runs; after six, for at most two seconds
  double run_seconds = 1e-3;       // a run repeats the move for this long, at least once
  std::string filter;              // only methods whose name contains this, and plain copies
};

// Throws UsageError for invalid sizes or counts.
void validate(const MemoryBenchOptions& options);

// One method at one size.
struct MemoryTiming {
  backend::MemoryMethod method;
  std::size_t bytes = 0;
  std::string refusal;          // why it was not measured; empty if it was
  int rounds = 1;               // moves in a timed run
  std::vector<double> seconds;  // per move, one value per run

  bool measured() const { return !seconds.empty(); }
  double bytes_per_second() const;                       // of the median run, counting bytes read and written
  ConfidenceInterval bytes_per_second_interval() const;  // 95%
};

// Called after each method and size; false stops.
using MemoryProgress = std::function<bool(std::size_t done, std::size_t of)>;

// Measures every method at every size, in the study's order, and checks what was moved: InternalError if a
// word is out of place. Returns what was measured so far when stopped.
std::vector<MemoryTiming> bench_memory(const MemoryBenchOptions& options, backend::MemoryStudy& study,
                                       const MemoryProgress& progress);

// Throws InternalError, naming what was timed, if a word is not where the move should have put it.
void check_words(backend::MemoryMove& move, const MemoryTiming& timing);

inline constexpr backend::MemoryGroup kMemoryGroups[] = {
    backend::MemoryGroup::to_device, backend::MemoryGroup::from_device, backend::MemoryGroup::access};
// "host to device"
const char* name_of(backend::MemoryGroup group);
// The fastest plain copy of the group at a size, or at the largest measured, in bytes per second; 0 if there
// is none.
double ceiling(const std::vector<MemoryTiming>& timings, backend::MemoryGroup group, std::size_t bytes);
double ceiling(const std::vector<MemoryTiming>& timings, backend::MemoryGroup group);

// The rates of one group as a table with a column per size; empty if the group has none.
std::string memory_table(const std::vector<MemoryTiming>& timings, backend::MemoryGroup group);
// One line per timing, after a header line. of_plain_copy is relative to the plain copy of the same size.
std::string memory_csv(const std::vector<MemoryTiming>& timings);
nlohmann::ordered_json memory_json(const std::vector<MemoryTiming>& timings);
// The rates of a group at its largest size, one bar per method; within a memory, those with the most threads.
// Empty if the group has none.
BarChart memory_chart(const std::vector<MemoryTiming>& timings, backend::MemoryGroup group);

}  // namespace redline::bench
