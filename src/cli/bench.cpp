// redline bench: measure parts of the program on their own.
#include <memory>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "backend/backend.h"
#include "base/build_info.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/machine.h"
#include "base/signals.h"
#include "bench/op_bench.h"
#include "bench/op_limits.h"
#include "cli/bench.h"
#include "cli/command.h"
#include "cli/progress_line.h"
#include "profile/disturbance.h"
#include "train/setup.h"

namespace redline::cli {
namespace {

struct OpFlags {
  bench::OpBenchOptions options;
  backend::DeviceOptions device{.device = "auto"};
  std::string dtype;  // empty: as train chooses
  std::string json;
  bool no_fuse = false;
};

// What was measured, without the numbers.
nlohmann::ordered_json setting_json(const OpFlags& flags, const backend::Backend& backend) {
  const graph::ModelOptions& model = flags.options.plan.model;
  nlohmann::ordered_json json = bench_record("bench op");
  json.update({{"device", backend.description()},
               {"model", model.model},
               {"dtype", name_of(model.dtype)},
               {"batch", model.batch},
               {"image_size", model.image_size},
               {"repeat", flags.options.repeat},
               {"in_step", flags.options.in_step},
               {"filter", flags.options.filter}});
  return json;
}

// Null for the reference backend, which has no memory study.
std::shared_ptr<backend::MemoryStudy> study_where_there_is_one(const backend::Backend& backend,
                                                               const backend::DeviceOptions& device) {
  try {
    return memory_study_of(backend, device);
  } catch (const UnavailableError&) {
    return nullptr;
  }
}

int run_op_bench(OpFlags& flags) {
  require_optimised_build();
  if (flags.device.threads < 0) throw UsageError("--threads {} is negative", flags.device.threads);
  if (!flags.dtype.empty()) graph::parse_dtype(flags.dtype);
  flags.options.plan.fuse = !flags.no_fuse;
  flags.device.cache_dir = cache_folder();
  flags.device.tuning = backend::Tuning::all;  // to measure the fastest there is
  const StopSignals signals;
  flags.device.stop = [&] { return signals.requested(); };
  const auto backend = backend::make_backend(flags.device);
  train::Config config;
  config.device.dtype = flags.dtype;
  flags.options.plan.model.dtype = train::resolve_dtype(config, *backend).dtype;
  // On a GPU one kernel may do several neighbouring ops, so an op on its own says little.
  if (backend->device_memory()) flags.options.in_step = true;
  fmt::print("{}; {} training, batch {}, {} px, {}; {}\n", backend->description(),
             flags.options.plan.model.model, flags.options.plan.model.batch,
             flags.options.plan.model.image_size, name_of(flags.options.plan.model.dtype),
             flags.options.in_step ? "ops within the step" : "each op on its own");

  ResultFile file(flags.json);
  MachineWatch watch;
  // Shows the progress of one part.
  const auto shown = [&](ProgressLine& line) -> bench::Progress {
    return [&](std::int64_t done, std::int64_t of) {
      line.update(done, of);
      return !signals.requested();
    };
  };
  std::vector<bench::OpTiming> ops;
  bench::OpLimits limits;
  try {
    ProgressLine timing("timing", flags.options.in_step ? "steps" : "ops");
    ops = bench::bench_ops(flags.options, *backend, shown(timing));
    timing.clear();
    const auto study = signals.requested() ? nullptr : study_where_there_is_one(*backend, flags.device);
    if (study) {
      ProgressLine copying("copying", "sizes");
      limits = bench::measure_limits(ops, flags.options, *backend, *study, shown(copying));
      copying.clear();
    }
  } catch (const backend::Abandoned&) {  // told below
  }
  if (signals.requested()) {
    print_stderr("redline: stopped; nothing was written\n");
    return kSignalExit + signals.signal();
  }
  fmt::print("{}", bench::op_table(ops, limits, flags.options));
  nlohmann::ordered_json record = setting_json(flags, *backend);
  record["disturbed"] = watch.disturbances(!backend->device_memory());
  record.update(bench::op_json(ops, limits));
  file.write(record);
  return 0;
}

void add_op(CLI::App& group, Context& context) {
  CLI::App& command =
      add_command(group, "op", "Time every distinct op of a training step",
                  {"redline bench op", "redline bench op --op conv --dtype bf16 -b 64 --image-size 64",
                   "redline bench op --in-step --json ops.json"});
  const auto flags = std::make_shared<OpFlags>();
  graph::ModelOptions& model = flags->options.plan.model;
  command.add_option("--model", model.model, "Model whose training step is timed")->capture_default_str();
  command.add_option("--classes", model.classes, "Number of classes")->capture_default_str();
  command.add_option("--image-size", model.image_size, "Image height and width in pixels")
      ->capture_default_str();
  command.add_option("-b,--batch-size,--batch", model.batch, "Batch size")->capture_default_str();
  command.add_option("--dtype", flags->dtype,
                     "fp32, bf16 or fp16 (default: mixed precision on a GPU, fp32 on a CPU)");
  command.add_option("--device", flags->device.device, "cuda, cuda:N, cpu or auto")->capture_default_str();
  command.add_option("--threads", flags->device.threads, "Compute threads on a CPU (0: all cores)")
      ->capture_default_str();
  command.add_option("--op", flags->options.filter, "Only ops whose kind or layer contains this");
  command.add_option("--repeat", flags->options.repeat, "Timed runs of each op")->capture_default_str();
  command.add_flag("--in-step", flags->options.in_step,
                   "Time ops within whole steps, with caches as in training; always so on a GPU");
  command.add_flag("--no-fuse", flags->no_fuse, "Run every op separately, without fusion");
  command.add_option("--json", flags->json, "Also write the result to this file")->type_name("FILE");
  on_run(command, context, [flags] { return run_op_bench(*flags); });
}

}  // namespace

void require_optimised_build() {
  const std::string type = build_info().build_type;
  if (type == "Release" || type == "RelWithDebInfo") return;
  throw UnavailableError("this is a {} build, and its timings mean nothing: build with the preset 'release'",
                         type);
}

std::shared_ptr<backend::MemoryStudy> memory_study_of(const backend::Backend& backend,
                                                      backend::DeviceOptions options) {
  if (options.device == "auto") options.device = backend.name();
  return backend::make_memory_study(options);
}

std::vector<std::string> MachineWatch::disturbances(bool host_computes) {
  profile::TelemetrySummary now;
  now.seconds = watch_.seconds();
  now.cpu = profile::shares_between(before_, sensors_.read());
  std::vector<std::string> texts;
  for (const profile::Finding& finding : profile::findings(now, host_computes, /*alone=*/true))
    texts.push_back(finding.text);
  for (const std::string& text : texts) fmt::print("disturbed: {}; measure again on a quiet machine\n", text);
  return texts;
}

void ResultFile::write(const std::string& text) {
  if (!file_) return;
  file_->write(text);
  file_->commit();
}

void ResultFile::write(const nlohmann::ordered_json& record) {
  write(record.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

nlohmann::ordered_json bench_record(const char* kind) {
  const BuildInfo build = build_info();
  const Machine machine = inspect_machine();
  return {{"schema", 1},
          {"kind", kind},
          {"time", utc_timestamp()},
          {"redline",
           {{"version", build.version},
            {"commit", build.commit},
            {"build", build.build_type},
            {"compiler", build.compiler}}},
          {"machine",
           {{"cpu", machine.cpu},
            {"cores", machine.cores_allowed},
            {"os", machine.os},
            {"kernel", machine.kernel}}}};
}

void add_bench(CLI::App& app, Context& context) {
  CLI::App& group = add_group(
      app, "bench", "Measure parts of the program separately",
      {"redline bench throughput", "redline bench ab -- --dtype fp32 -- --dtype bf16", "redline bench op",
       "redline bench data shapes", "redline bench memory", "redline bench lr flowers"});
  add_bench_throughput(group, context);
  add_bench_ab(group, context);
  add_op(group, context);
  add_bench_data(group, context);
  add_bench_comm(group, context);
  add_bench_memory(group, context);
  add_bench_lr(group, context);
}

}  // namespace redline::cli
