// CUPTI's activity records: every kernel, copy and call with its times, and for kernels in a CUDA graph the
// op that launched them. Also its range profiler, which reads hardware counters kernel by kernel. The library
// is loaded when a tracer is made, and not used otherwise.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/tracer.h"
#include "base/shared_library.h"

namespace redline::backend::cuda {

// An executable whose groups can be launched one at a time.
class GroupLauncher {
 public:
  virtual ~GroupLauncher() = default;
  virtual std::pair<std::size_t, std::size_t> groups_of(
      Section section) const = 0;                          // first, and one past the last
  virtual const graph::Op& lead(std::size_t i) const = 0;  // the op that it is named after
  virtual void open_run() = 0;                             // before the first group of a section
  virtual void launch_group(std::size_t i) = 0;            // on stream()
  virtual void close_run() = 0;  // after the last: the metrics are those of this run
  virtual cudaStream_t stream() const = 0;
};

// See Tracer::count.
std::vector<KernelCounts> count_kernels(const SharedLibrary& cupti, GroupLauncher& groups, Section section,
                                        const std::vector<std::string>& metrics);

class KernelTracer : public Tracer {
 public:
  // The nodes that were added to the graph captured from `stream` since the last call belong to `op`, or, if
  // it is null, to the step as a whole. Does nothing if the stream is not being captured.
  virtual void launched(cudaStream_t stream, const graph::Op* op) = 0;
};
// Throws UnavailableError if CUPTI is missing or refuses. Only one can exist at a time.
std::shared_ptr<KernelTracer> make_kernel_tracer();

}  // namespace redline::backend::cuda
