// The files of a profile: the trace that viewers open, the tables that scripts read, and the durations of
// iterations. docs/profiling.md describes them.
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

// Whose timeline it is.
struct Subject {
  std::string host;  // name of the machine
  int process = 0;   // id
  int device = 0;    // number of the GPU
  std::string device_name;
  std::uint64_t device_memory = 0;           // bytes
  int compute_major = 0, compute_minor = 0;  // 0 for a CPU
  int processors = 0;                        // of a GPU (SMs); 0 when not known
  int rank = 0, world_size = 1;
};

// What an op works on and how much work that is, once, as members of a JSON object: "Input Dims", "Output
// Dims", "op FLOPs", "op bytes". Ops are those that groups are named after.
using OpArguments = std::unordered_map<const graph::Op*, std::string>;
OpArguments op_arguments(const std::vector<PlanRuns>& plans);

struct TraceWritten {
  std::uint64_t events = 0;
  std::int64_t steps = 0, steps_left_out = 0;
  std::uint64_t bytes = 0;  // before compression
};

// A Chrome trace, compressed, that Perfetto, TensorBoard's PyTorch plugin and HolisticTraceAnalysis open.
// Events of ops have `arguments`, and `samples` within the steps are tracks of clock and power. It ends with
// the last whole step that keeps it under `most_bytes` before compression: viewers do not open more than
// about half a gigabyte. Throws IoError.
TraceWritten write_trace(const Timeline& timeline, const OpArguments& arguments,
                         const std::vector<TelemetrySample>& samples, const Subject& subject,
                         const std::filesystem::path& path, std::uint64_t most_bytes);

// Share of a multiprocessor's threads that a kernel of this shape keeps there at most, in percent.
double estimated_occupancy(const backend::Activity& kernel, int processors);

// A row for everything that ran on the device, with the columns that users of nvprof know, and a row for
// every sample of clocks, power and temperature; rows are in order of time, which begins with the first of
// them. It ends, as the trace does, with a whole step before `most_bytes`; gives how many steps it has.
// Throws IoError.
std::int64_t write_kernel_csv(const Timeline& timeline, const std::vector<TelemetrySample>& samples,
                              const Subject& subject, const std::filesystem::path& path,
                              std::uint64_t most_bytes);

// "Iteration Duration <step> <device> : <seconds>", and at the end "Training time: H:MM:SS.f".
std::string iteration_text(const Timeline& timeline, const Subject& subject);

}  // namespace redline::profile
