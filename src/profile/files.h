// The files of a profile: a trace for viewers, tables for scripts, and iteration times. docs/profiling.md
// describes them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <unordered_map>
#include <vector>

#include "profile/summary.h"
#include "profile/telemetry.h"
#include "profile/timeline.h"

namespace redline::profile {

// Where a timeline was recorded.
struct Subject {
  std::string host;  // name of the machine
  int process = 0;   // id
  int device = 0;    // number of the GPU
  std::string device_name;
  std::uint64_t device_memory = 0;           // bytes
  int compute_major = 0, compute_minor = 0;  // 0 for a CPU
  int processors = 0;                        // SMs of a GPU; 0 if unknown
  int rank = 0, world_size = 1;
};

// Shapes and work of each op as members of a JSON object: "Input Dims", "Output Dims", "op FLOPs", "op
// bytes". The ops are those that groups are named after.
using OpArguments = std::unordered_map<const graph::Op*, std::string>;
OpArguments op_arguments(const std::vector<PlanRuns>& plans);

struct TraceWritten {
  std::uint64_t events = 0;
  std::int64_t steps = 0, steps_left_out = 0;
  std::uint64_t bytes = 0;  // before compression
};

// A compressed Chrome trace for Perfetto, TensorBoard's PyTorch plugin and HolisticTraceAnalysis. Op events
// have `arguments`; `samples` within the steps become tracks of clock and power. It ends with the last whole
// step that keeps it under `most_bytes` before compression: viewers cannot open much more than half a
// gigabyte. Throws IoError.
TraceWritten write_trace(const Timeline& timeline, const OpArguments& arguments,
                         const std::vector<TelemetrySample>& samples, const Subject& subject,
                         const std::filesystem::path& path, std::uint64_t most_bytes);

// The most threads that a kernel of this shape can keep on an SM, in percent of the SM's threads.
double estimated_occupancy(const backend::Activity& kernel, int processors);

// One row for everything that ran on the device, with nvprof's columns, and one for every sample of clocks,
// power and temperature. Rows are in order of time, from 0 at the first. Like the trace, it ends with a whole
// step before `most_bytes`; returns how many steps it has. Throws IoError.
std::int64_t write_kernel_csv(const Timeline& timeline, const std::vector<TelemetrySample>& samples,
                              const Subject& subject, const std::filesystem::path& path,
                              std::uint64_t most_bytes);

// "Iteration Duration <step> <device> : <seconds>", and at the end "Training time: H:MM:SS.f".
std::string iteration_text(const Timeline& timeline, const Subject& subject);

}  // namespace redline::profile
