// How fast bytes move: every method of a backend's memory study, by size, against a plain copy of the same
// run.
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
  int repeat = 20;                 // timed runs; after six, no more than two seconds of them
  double run_seconds = 1e-3;       // a run has as many moves as this takes, one at least
  std::string filter;              // only methods whose name has this in it, and plain copies
};

// Throws UsageError for sizes or counts that make no sense.
void validate(const MemoryBenchOptions& options);

// One method at one size.
struct MemoryTiming {
  backend::MemoryMethod method;
  std::size_t bytes = 0;
  std::string refusal;          // why it was not measured; empty when it was
  int rounds = 1;               // moves in a timed run
  std::vector<double> seconds;  // of a move, one value a run

  bool measured() const { return !seconds.empty(); }
  double bytes_per_second() const;  // of the median run, counting what must be read and written
  ConfidenceInterval bytes_per_second_interval() const;  // 95%
};

// Told after each method and size; false stops.
using MemoryProgress = std::function<bool(std::size_t done, std::size_t of)>;

// Every method at every size, in the study's order, with what it moved checked afterwards: InternalError when
// a word is out of place. Gives what was measured so far when stopped.
std::vector<MemoryTiming> bench_memory(const MemoryBenchOptions& options, backend::MemoryStudy& study,
                                       const MemoryProgress& progress);

// Throws InternalError, naming what was timed, when a word is not where the move must have put it.
void check_words(backend::MemoryMove& move, const MemoryTiming& timing);

inline constexpr backend::MemoryGroup kMemoryGroups[] = {
    backend::MemoryGroup::to_device, backend::MemoryGroup::from_device, backend::MemoryGroup::access};
// "host to device"
const char* name_of(backend::MemoryGroup group);
// The fastest plain copy of the group at a size, or at the largest it was measured with, in bytes a second; 0
// when there is none.
double ceiling(const std::vector<MemoryTiming>& timings, backend::MemoryGroup group, std::size_t bytes);
double ceiling(const std::vector<MemoryTiming>& timings, backend::MemoryGroup group);

// The rates of one group as a table, a column a size; empty when the group has none.
std::string memory_table(const std::vector<MemoryTiming>& timings, backend::MemoryGroup group);
// A line each; the first gives the names of the columns. of_plain_copy is of the plain copy of the same size.
std::string memory_csv(const std::vector<MemoryTiming>& timings);
nlohmann::ordered_json memory_json(const std::vector<MemoryTiming>& timings);
// The rates of a group at its largest size, a bar a method; within a memory, those with most threads. Empty
// when the group has none.
BarChart memory_chart(const std::vector<MemoryTiming>& timings, backend::MemoryGroup group);

}  // namespace redline::bench
