// Two training steps on a GPU as its tracer could have recorded them: a copy, a convolution (its kernel does
// the ReLU after it too) and a norm each, the second launched while the first runs.
#pragma once

#include <string>
#include <vector>

#include "plan/fakes.h"
#include "profile/files.h"
#include "profile/summary.h"
#include "profile/timeline.h"

namespace redline::profile {

struct HandMade {
  static constexpr std::int64_t kUs = 1000;  // nanoseconds

  plan::Plan plan;
  std::string conv = "sm90_xmma_fprop", norm = "norm_kernel", copy = "Memcpy HtoD",
              launch = "cudaGraphLaunch", copy_call = "cudaMemcpyAsync";

  HandMade() {
    graph::Graph graph;
    graph::Builder builder(graph, graph::DType::f32, true);
    const auto x = builder.input("x", {2, 16, 8, 8}, graph::DType::f32);
    builder.batch_norm("layer1.bn",
                       builder.relu("layer1.relu", builder.conv("layer1.conv", x, 16, 3, {1, 1})));
    plan = plan::make_plan(std::move(graph), plan::FakeBackend());
    plan.groups = {{"", {0, 1}}, {"", {2}}};
    plan.update_begin = 2;
  }

  const std::vector<graph::Op>& ops() const { return plan.graph().ops(); }
  // Of the convolution: a multiplication and an addition for each tap that meets the image, of which 22 of 24
  // do along each side of its 8 pixels.
  static double conv_flops() { return 2.0 * 2 * 16 * 16 * 22 * 22; }
  // As the two steps ran it.
  PlanRuns runs() const { return {&plan, 2, 2}; }

  static backend::Activity event(backend::Activity::Kind kind, const std::string& name, std::int64_t begin,
                                 std::int64_t end, std::uint32_t correlation) {
    backend::Activity activity;
    activity.kind = kind;
    activity.name = &name;
    activity.begin = begin;
    activity.end = end;
    activity.correlation = correlation;
    activity.stream = 7;
    return activity;
  }

  std::vector<backend::Activity> records() const {
    using Kind = backend::Activity::Kind;
    std::vector<backend::Activity> all = {
        event(Kind::kernel, norm, 100 * kUs, 900 * kUs, 1)};  // launched before the window
    for (const std::int64_t step : {0, 1}) {
      const std::int64_t call = (1000 + 1000 * step) * kUs, run = (1000 + 4000 * step) * kUs;
      const auto id = static_cast<std::uint32_t>(10 * (step + 1));
      all.push_back(event(Kind::call, copy_call, call + 100 * kUs, call + 150 * kUs, id));
      all.push_back(event(Kind::call, launch, call + 200 * kUs, call + 300 * kUs, id + 1));
      backend::Activity copied = event(Kind::copy, copy, run, run + 500 * kUs, id);
      copied.bytes = 1 << 20;
      copied.from = "Pinned";
      copied.to = "Device";
      copied.stream = 9;
      all.push_back(copied);
      backend::Activity kernel = event(Kind::kernel, conv, run + 500 * kUs, run + 2500 * kUs, id + 1);
      kernel.op = &ops()[0];
      kernel.grid = {128, 2, 1};
      kernel.block = {256, 1, 1};
      kernel.registers = 64;
      all.push_back(kernel);
      kernel = event(Kind::kernel, norm, run + 3000 * kUs, run + 4000 * kUs, id + 1);
      kernel.op = &ops()[2];
      kernel.grid = {64, 1, 1};
      kernel.block = {128, 1, 1};
      all.push_back(kernel);
    }
    return all;
  }

  Timeline timeline() const {
    return make_timeline(records(), {{5, 1000 * kUs, 2000 * kUs, 0, 0}, {6, 2000 * kUs, 3000 * kUs, 0, 0}},
                         {{HostWork::data, 1000 * kUs, 1050 * kUs}, {HostWork::data, 2000 * kUs, 2050 * kUs}},
                         false);
  }

  static Subject subject() {
    Subject subject;
    subject.host = "node1";
    subject.process = 4321;
    subject.device_name = "NVIDIA H200";
    subject.device_memory = std::uint64_t{141} << 30;
    subject.compute_major = 9;
    subject.processors = 132;
    return subject;
  }
};

}  // namespace redline::profile
