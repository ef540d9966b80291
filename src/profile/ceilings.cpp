#include "profile/ceilings.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <vector>

#include "graph/graph.h"
#include "plan/plan.h"
#include "plan/traffic.h"

namespace redline::profile {
namespace {

using graph::Builder;
using graph::Shape;
using graph::TensorId;

// An activation that something before would have made.
TensorId given(graph::Graph& graph, const char* name, Shape shape, graph::DType dtype) {
  return graph.add_tensor({name, shape, dtype, graph::TensorKind::activation});
}

// Seconds of the only op of a graph, at its fastest: others may use the machine too.
double fastest(graph::Graph graph, backend::Backend& backend) {
  constexpr int kRepeats = 15;
  const auto plan = std::make_shared<plan::Plan>(plan::make_plan(std::move(graph), backend));
  const auto executable = backend.compile(plan, backend.make_state());
  double best = 0;
  for (int i = 0; i <= kRepeats; ++i) {
    std::vector<backend::OpTime> times;
    executable->run(backend::Section::compute, &times);
    double seconds = 0;
    for (const backend::OpTime& time : times) seconds += std::chrono::duration<double>(time.duration).count();
    if (i == 1 || (i > 1 && seconds < best)) best = seconds;  // the first warms up
  }
  return best;
}

}  // namespace

double Ceilings::least_seconds(double work_flops, double work_bytes) const {
  return std::max(flops > 0 ? work_flops / flops : 0, bytes > 0 ? work_bytes / bytes : 0);
}

Ceilings measure_ceilings(backend::Backend& backend, graph::DType dtype) {
  // Large enough to fill a device, small enough for a CPU: that is a factor of a thousand in speed.
  const bool card = backend.device_memory().has_value();
  const std::int64_t side = card ? 8192 : 1024, images = card ? 128 : 4;
  Ceilings ceilings;
  const auto rate = [&](const std::function<void(graph::Graph&)>& build, bool count_flops) {
    graph::Graph graph;
    build(graph);
    double work = 0;
    for (const graph::Op& op : graph.ops())
      work += count_flops ? graph::flops(graph, op) : plan::counted_bytes(graph, op);
    const double seconds = fastest(std::move(graph), backend);
    return seconds > 0 ? work / seconds : 0;
  };
  const double product = rate(
      [&](graph::Graph& graph) {
        Builder builder(graph, dtype, false);
        builder.linear("ceiling", given(graph, "x", {side, side}, dtype), side);
      },
      true);
  const double convolution = rate(
      [&](graph::Graph& graph) {
        Builder builder(graph, dtype, false);
        builder.conv("ceiling", given(graph, "x", {images, 256, 28, 28}, dtype), 256, 3, 1, 1);
      },
      true);
  ceilings.flops = std::max(product, convolution);
  ceilings.bytes = rate(
      [&](graph::Graph& graph) {
        Builder builder(graph, dtype, false);
        const Shape shape{card ? 256 : 8, 256, 56, 56};
        builder.add("ceiling", given(graph, "a", shape, dtype), given(graph, "b", shape, dtype));
      },
      false);
  return ceilings;
}

}  // namespace redline::profile
