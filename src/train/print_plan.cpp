#include <map>
#include <string>
#include <string_view>

#include <fmt/ranges.h>

#include "base/quantity.h"
#include "base/text.h"
#include "data/sampler.h"
#include "graph/graph.h"
#include "plan/plan.h"
#include "train/schedule.h"
#include "train/session.h"
#include "train/setup.h"
#include "train/trained_model.h"
#include "train/trainer.h"

namespace redline::train {
namespace {

struct Work {
  double forward = 0, backward = 0;  // FLOP for a batch
};

Work work_of(const plan::Plan& plan) {
  Work work;
  for (const graph::Op& op : plan.graph().ops()) {
    const double flops = graph::flops(plan.graph(), op);
    if (op.phase == graph::Phase::forward) work.forward += flops;
    if (op.phase == graph::Phase::backward) work.backward += flops;
  }
  return work;
}

struct Parameters {
  std::int64_t all = 0, frozen = 0;
};

Parameters parameters_of(const plan::Plan& plan) {
  Parameters count;
  for (const graph::TensorId id : plan.graph().of_kind(graph::TensorKind::parameter)) {
    const graph::Tensor& tensor = plan.graph().tensor(id);
    count.all += tensor.shape.elements();
    if (tensor.frozen) count.frozen += tensor.shape.elements();
  }
  return count;
}

void print_model(const Setup& setup, const plan::Plan& plan, std::FILE* out) {
  const Config& config = setup.config;
  const auto batch = static_cast<double>(config.optimizer.batch_size);
  const auto batches = static_cast<double>(config.optimizer.accumulate);
  const Work work = work_of(plan);
  fmt::print(out, "model       {}, {} classes, {} px, {} ({})\n", config.model.name, setup.classes,
             config.model.image_size, config.device.dtype, setup.why_dtype);
  if (!config.schedule.train_sizes.empty())
    fmt::print(out, "training    at {} px; what follows is for {}\n",
               fmt::join(config.schedule.train_sizes, ", "), image_size_of(plan));
  fmt::print(out, "data        {}\n", setup.data_text());
  fmt::print(out, "device      {}\n", setup.backend->description());
  const Parameters parameters = parameters_of(plan);
  fmt::print(out, "parameters  {} ({}){}\n", parameters.all,
             format_count(static_cast<double>(parameters.all)),
             parameters.frozen == 0 ? "" : fmt::format(", {} of them frozen", parameters.frozen));
  fmt::print(
      out, "step        {} in {} of {}\n",
      counted(config.optimizer.batch_size * config.optimizer.accumulate, "image"),
      config.optimizer.accumulate == 1 ? "one batch" : fmt::format("{} batches", config.optimizer.accumulate),
      config.optimizer.batch_size);
  fmt::print(out, "\nFLOP        {:>10}  {:>10}\n", "an image", "a step");
  for (const auto& [name, flops] : {std::pair<const char*, double>{"forward", work.forward},
                                    {"backward", work.backward},
                                    {"both", work.forward + work.backward}}) {
    fmt::print(out, "  {:<9} {:>10}  {:>10}\n", name, format_count(flops / batch),
               format_count(flops * batches));
  }
}

void print_ops(const plan::Plan& plan, std::FILE* out) {
  struct Row {
    int forward = 0, backward = 0, update = 0;
  };
  std::map<graph::OpKind, Row> rows;
  for (const graph::Op& op : plan.graph().ops()) {
    Row& row = rows[op.kind];
    ++(op.phase == graph::Phase::forward    ? row.forward
       : op.phase == graph::Phase::backward ? row.backward
                                            : row.update);
  }
  fmt::print(out, "\n{:<24}{:>8}{:>9}{:>8}\n", fmt::format("ops ({})", plan.graph().ops().size()), "forward",
             "backward", "update");
  const auto cell = [](int count) { return count == 0 ? std::string() : std::to_string(count); };
  for (const auto& [kind, row] : rows) {
    std::string line = fmt::format("  {:<22}{:>8}{:>9}{:>8}", graph::name_of(kind), cell(row.forward),
                                   cell(row.backward), cell(row.update));
    line.erase(line.find_last_not_of(' ') + 1);
    fmt::print(out, "{}\n", line);
  }
  if (plan.fused_ops == 0) {
    fmt::print(out, "\nfused       nothing\n");
    return;
  }
  fmt::print(out, "\nfused       {} ops of the model\n", plan.fused_ops);
  for (const std::string& line : plan.fusions) fmt::print(out, "  {}\n", line);
}

void print_memory(const Setup& setup, std::FILE* out) {
  const plan::Plan& plan = *setup.plans.train;
  const plan::MemoryUse use = plan::memory_use(plan);
  const Memory need = memory_need(setup.config, setup.plans, *setup.backend, setup.decoding);
  const Memory available = memory_available(setup.machine, *setup.backend);
  fmt::print(out, "\nmemory\n");
  for (const auto& [name, bytes] : {std::pair<const char*, std::size_t>{"parameters", use.parameters},
                                    {"statistics", use.statistics},
                                    {"optimizer", use.optimizer},
                                    {"averages", use.average},
                                    {"gradients", use.gradients},
                                    {"activations", use.activations},
                                    {"inputs", use.inputs},
                                    {"training", use.total()},
                                    {"evaluation", plan::memory_use(*setup.plans.eval).activations +
                                                       plan::memory_use(*setup.plans.eval).inputs},
                                    {"decoding", setup.decoding.memory_need(plan)},
                                    {"device peak", need.device},
                                    {"device free", available.device},
                                    {need.device > 0 ? "host" : "whole run", need.host},
                                    {"available", available.host}}) {
    if (bytes > 0) fmt::print(out, "  {:<12}{:>10}\n", name, format_bytes(bytes));
  }
  fmt::print(out, "\ngradient buckets: {}\n", plan.buckets.size());
  for (const plan::Bucket& bucket : plan.buckets) {
    fmt::print(out, "  {:>10} in {} gradients\n", format_bytes(bucket.bytes), bucket.gradients.size());
  }
}

// Throws as training would; without a loader, whose threads and memory this does not need.
void check_schedule(const Setup& setup) {
  const Config& config = setup.config;
  std::int64_t batches = config.data.synthetic_batches;
  if (!setup.synthetic())
    batches = data::Sampler({.samples = setup.train_records->count(),
                             .batch_size = static_cast<int>(config.optimizer.batch_size),
                             .ranks = static_cast<int>(config.ranks)})
                  .batches_per_epoch();
  make_schedule(config, steps_per_epoch(config, batches));
}

}  // namespace

void print_plan(const Config& config, std::FILE* out) {
  validate(config);
  Config alone = config;
  share_global_batch(alone);
  const Setup setup = prepare(alone);
  check_schedule(setup);
  if (!config.model.init.empty()) load_initial(config.model.init, config.model.name);
  print_model(setup, *setup.plans.train, out);
  print_ops(*setup.plans.train, out);
  print_memory(setup, out);
}

}  // namespace redline::train
