// CUPTI's activity records: every kernel, copy and call with its times, and of kernels in a CUDA graph the op
// that launched them; and its range profiler, which counts in hardware, kernel by kernel. The library is
// looked up when a tracer is made; without one, nothing of it is touched.
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
  virtual const graph::Op& lead(std::size_t i) const = 0;  // that it is named after
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
  // Says that what was added to the graph that `stream` is captured into since the last call belongs to `op`,
  // or to the step as a whole (null). Nothing happens when it is not being captured.
  virtual void launched(cudaStream_t stream, const graph::Op* op) = 0;
};
// Throws UnavailableError when CUPTI is not there or refuses. One at a time.
std::shared_ptr<KernelTracer> make_kernel_tracer();

}  // namespace redline::backend::cuda
