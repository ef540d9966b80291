#include "bench/step_times.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/random.h"
#include "base/statistics.h"
#include "graph/models/resnet.h"

namespace redline::bench {
namespace {

using graph::TensorKind;

// Initial weights, random images, and labels in range.
void fill_model(const plan::Options& options, backend::State& state, backend::Executable& executable) {
  for (const std::string& name : state.names()) {
    const graph::Tensor& tensor = state.tensor(name);
    if (tensor.kind != TensorKind::parameter && tensor.kind != TensorKind::statistic) continue;
    std::vector<float> values(static_cast<std::size_t>(tensor.shape.elements()));
    graph::initial_value(tensor, 1, false, options.model.model, values);
    state.write(name, values);
  }
  const graph::Model& model = executable.plan().model;
  Random random(1);
  std::vector<std::uint8_t> images(
      static_cast<std::size_t>(model.graph.tensor(model.images).shape.elements()));
  for (std::uint8_t& byte : images) byte = static_cast<std::uint8_t>(random.next_u32());
  executable.write_input(model.images, images.data(), images.size());
  std::vector<std::int32_t> labels(static_cast<std::size_t>(options.model.batch));
  for (std::int32_t& label : labels) {
    label = static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(options.model.classes)));
  }
  executable.write_input(model.labels, labels.data(), labels.size() * sizeof(std::int32_t));
  const float scalars[graph::kStepScalars] = {1e-3F, 1.0F, 0.999F, 0.0F, 1.0F};
  executable.write_input(model.scalars, scalars, sizeof scalars);
}

// A plan with weights and inputs, ready to run.
struct ReadyStep {
  std::shared_ptr<backend::State> state;
  std::unique_ptr<backend::Executable> executable;

  ReadyStep(const plan::Options& options, std::shared_ptr<const plan::Plan> plan, backend::Backend& backend)
      : state(backend.make_state()), executable(backend.compile(std::move(plan), state)) {
    fill_model(options, *state, *executable);
  }
};

// Times each of `repeat` steps; false from `progress` stops, after the first. `runs_ahead` as in Backend:
// such a device is kept busy while ops are queued, so that their times do not include launching.
std::vector<std::vector<double>> time_ops(backend::Executable& executable, bool runs_ahead, int repeat,
                                          const StepProgress& progress) {
  std::vector<std::vector<double>> times(executable.plan().groups.size());
  for (int i = 0; i <= repeat; ++i) {
    for (backend::Section section : {backend::Section::compute, backend::Section::update}) {
      std::vector<backend::OpTime> measured;
      if (runs_ahead) executable.run(backend::Section::compute);
      executable.run(section, &measured);
      if (i == 0) continue;  // warm-up
      for (const auto& time : measured)
        times[static_cast<std::size_t>(time.group)].push_back(seconds_of(time));
    }
    if (!progress(i + 1, repeat + 1) && i > 0) break;
  }
  return times;
}

// Launch a few steps before waiting for the device, as in training.
double time_unit(backend::Executable& executable) {
  constexpr int kSteps = 4;
  const Stopwatch watch;
  for (int i = 0; i < kSteps; ++i) executable.run(backend::Section::step);
  executable.request_metrics();
  executable.take_metrics(/*wait=*/true);
  return watch.seconds() / kSteps;
}

double bytes_of(const plan::Plan& plan, const plan::Bucket& bucket, std::optional<graph::DType> wire) {
  if (!wire) return static_cast<double>(bucket.bytes);
  double bytes = 0;
  for (const graph::TensorId id : bucket.gradients)
    bytes +=
        static_cast<double>(plan.graph().tensor(id).shape.elements()) * static_cast<double>(size_of(*wire));
  return bytes;
}

}  // namespace

double seconds_of(const backend::OpTime& time) {
  return std::chrono::duration<double>(time.duration).count();
}

std::vector<std::vector<double>> time_ops_in_steps(const plan::Options& options,
                                                   std::shared_ptr<const plan::Plan> plan,
                                                   backend::Backend& backend, int repeat,
                                                   const StepProgress& progress) {
  const ReadyStep step(options, std::move(plan), backend);
  return time_ops(*step.executable, backend.runs_ahead(), repeat, progress);
}

std::optional<StepShape> measure_step(const plan::Options& options, backend::Backend& backend,
                                      std::optional<graph::DType> wire, int repeat,
                                      const StepProgress& progress) {
  const auto plan = std::make_shared<plan::Plan>(plan::make_plan(options, backend));
  const ReadyStep step(options, plan, backend);
  const int all = 2 * repeat + 2;
  bool stopped = false;
  const auto tell = [&](std::int64_t done) { stopped = stopped || !progress(done, all); };
  const auto ops =
      time_ops(*step.executable, backend.runs_ahead(), repeat, [&](std::int64_t done, std::int64_t) {
        tell(done);
        return !stopped;
      });
  std::vector<double> units;
  for (int i = 0; i <= repeat && !stopped; ++i) {
    const double seconds = time_unit(*step.executable);
    if (i > 0) units.push_back(seconds);  // the first is warm-up
    tell(repeat + 2 + i);
  }
  if (stopped) return std::nullopt;

  std::vector<double> ends;  // of each group, if they run one after the other
  double sum = 0;
  for (const std::vector<double>& times : ops) ends.push_back(sum += times.empty() ? 0 : median(times));
  StepShape shape;
  shape.seconds = sum;
  const auto update = static_cast<std::size_t>(plan->update_begin);
  shape.backward_end = update == 0 ? 0 : ends[update - 1];
  for (const plan::Bucket& bucket : plan->buckets)
    shape.buckets.push_back(
        {bytes_of(*plan, bucket, wire), ends[static_cast<std::size_t>(std::max(0, bucket.ready_after))]});
  std::ranges::stable_sort(shape.buckets, {}, &StepShape::Bucket::ready);
  return shape.scaled_to(median(units));
}

}  // namespace redline::bench
