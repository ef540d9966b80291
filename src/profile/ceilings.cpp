#include "profile/ceilings.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <vector>

#include "graph/graph.h"
#include "plan/traffic.h"

namespace redline::profile {
namespace {

using graph::Builder;
using graph::Shape;
using graph::TensorId;

// An input activation.
TensorId given(graph::Graph& graph, const char* name, Shape shape, graph::DType dtype) {
  return graph.add_tensor({name, shape, dtype, graph::TensorKind::activation});
}

// The highest rate of a graph's only op over several runs, as other processes may use the machine too.
plan::Work most_per_second(graph::Graph graph, backend::Backend& backend) {
  constexpr int kRepeats = 15;
  const auto plan = std::make_shared<plan::Plan>(plan::make_plan(std::move(graph), backend));
  const auto executable = backend.compile(plan, backend.make_state());
  const plan::Work work = plan::work_of(*plan, plan->groups).front();
  double best = 0;
  for (int i = 0; i <= kRepeats; ++i) {
    std::vector<backend::OpTime> times;
    executable->run(backend::Section::compute, &times);
    double seconds = 0;
    for (const backend::OpTime& time : times) seconds += std::chrono::duration<double>(time.duration).count();
    if (i == 1 || (i > 1 && seconds < best)) best = seconds;  // the first warms up
  }
  return best > 0 ? plan::Work{work.flops / best, work.bytes / best} : plan::Work{};
}

}  // namespace

double Ceilings::least_seconds(double work_flops, double work_bytes) const {
  return std::max(flops > 0 ? work_flops / flops : 0, bytes > 0 ? work_bytes / bytes : 0);
}

bool Ceilings::memory_bounds(double work_flops, double work_bytes) const {
  return flops > 0 && bytes > 0 && work_bytes / bytes > work_flops / flops;
}

Ceilings measure_ceilings(backend::Backend& backend, graph::DType dtype) {
  // Large enough to fill a GPU, small enough for a CPU: their speeds differ by a factor of a thousand.
  const bool gpu = backend.device_memory().has_value();
  const std::int64_t side = gpu ? 8192 : 1024, images = gpu ? 128 : 4;
  const auto most = [&](const std::function<void(graph::Graph&, Builder&)>& build) {
    graph::Graph graph;
    Builder builder(graph, dtype, false);
    build(graph, builder);
    return most_per_second(std::move(graph), backend);
  };
  const plan::Work product = most([&](graph::Graph& graph, Builder& builder) {
    builder.linear("ceiling", given(graph, "x", {side, side}, dtype), side);
  });
  const plan::Work convolution = most([&](graph::Graph& graph, Builder& builder) {
    builder.conv("ceiling", given(graph, "x", {images, 256, 28, 28}, dtype), 256, 3, {1, 1});
  });
  const plan::Work sum = most([&](graph::Graph& graph, Builder& builder) {
    const Shape shape{gpu ? 256 : 8, 256, 56, 56};
    builder.add("ceiling", given(graph, "a", shape, dtype), given(graph, "b", shape, dtype));
  });
  return {std::max(product.flops, convolution.flops), sum.bytes};
}

}  // namespace redline::profile
