// redline bench comm --predict: what training on many GPUs would give.
#include "cli/bench_predict.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "backend/backend.h"
#include "base/atomic_file.h"
#include "base/error.h"
#include "base/log.h"
#include "base/machine.h"
#include "base/quantity.h"
#include "base/signals.h"
#include "base/statistics.h"
#include "base/text.h"
#include "bench/chart.h"
#include "bench/comm_bench.h"
#include "bench/known_steps.h"
#include "bench/scaling_model.h"
#include "bench/sizes.h"
#include "bench/step_times.h"
#include "cli/bench.h"
#include "cli/command.h"
#include "cli/progress_line.h"
#include "comm/world.h"
#include "report/run.h"

namespace redline::cli {

struct PredictFlags {
  plan::Options plan;
  int threads = 0;
  double bucket_mb = 25;
  std::string grad_dtype;
  int steps = 10;
  std::string step, step_time;
  std::vector<std::string> against;
  std::string link = "400Gb/s,5us", intra = "450GB/s,2us", collective = "best", gpus = "8-4096";
  bench::ScalingOptions scaling = usual_losses();

  // Losses that ideal hardware does not have, but every cluster does: NCCL's kernels occupy multiprocessors
  // while they move gradients, and equal GPUs run at different clocks. Assumptions; benchmarks/results has
  // the resulting predictions.
  static bench::ScalingOptions usual_losses() {
    bench::ScalingOptions options;
    options.contention = 0.15;
    options.spread = 0.03;
    return options;
  }
};

namespace {

struct Step {
  bench::StepShape shape;
  std::int64_t batch = 0;
  std::string source;  // "cuda: …" where it was measured, or the file that it comes from
};

nlohmann::ordered_json read_record(const std::string& path) {
  try {
    return nlohmann::ordered_json::parse(read_file(path));
  } catch (const nlohmann::json::exception& error) {
    throw DataError("--step {}: not JSON: {}", path, error.what());
  }
}

std::string names_of_known_steps() {
  std::string names;
  for (const bench::KnownStep& step : bench::known_steps()) names += (names.empty() ? "" : ", ") + step.name;
  return names;
}

Step read_step(const std::string& path) {
  if (const auto known = bench::find_known_step(path)) return {known->shape, known->batch, known->source};
  if (path.starts_with("h200:"))
    throw UsageError("--step {}: not measured; choose from {}", path, names_of_known_steps());
  const nlohmann::ordered_json record = read_record(path);
  const bench::StepShape shape = bench::parse_step_shape(record, path);
  const auto batch = record.find("batch");
  const bool known = batch != record.end() && batch->is_number_integer();
  return {shape, known ? batch->get<std::int64_t>() : 0, path};
}

// A training run of several ranks, to which a prediction is compared.
struct MeasuredStep {
  std::string folder;
  int ranks = 0;
  std::int64_t batch = 0;
  double step_seconds = 0, exposed_seconds = 0;  // medians over its steps
};

MeasuredStep read_measured(const std::string& folder) {
  const report::Run run = report::read_run(folder);
  MeasuredStep found{folder, static_cast<int>(run.info.ranks), run.info.batch_size, 0, 0};
  const std::vector<double> seconds = report::step_seconds(run);
  std::vector<double> exposed;
  for (const double value : run.steps.communication_seconds)
    if (std::isfinite(value)) exposed.push_back(value);
  if (found.ranks < 2 || seconds.empty() || exposed.empty())
    throw DataError("--against {}: not a run of several ranks with at least two steps", folder);
  if (run.info.accumulate != 1)
    throw DataError("--against {}: a step of that run has {} batches, but the predicted step has one", folder,
                    run.info.accumulate);
  found.step_seconds = median(seconds);
  found.exposed_seconds = median(exposed);
  return found;
}

void check_batch(const MeasuredStep& run, const Step& step) {
  if (step.batch != 0 && step.batch != run.batch)
    throw UsageError(
        "--against {}: its ranks take {} images per step, but the predicted step has {}: use -b {}, or a "
        "--step of that batch",
        run.folder, run.batch, step.batch, run.batch);
}

// Empty when stopped.
std::optional<Step> measure_step(const PredictFlags& flags, const PredictOutput& output,
                                 const StopSignals& signals) {
  require_optimised_build();
  backend::DeviceOptions device;
  device.device = output.device;
  device.threads = flags.threads;
  device.cache_dir = cache_folder();
  device.tuning = backend::Tuning::all;  // what is measured is the fastest there is
  device.stop = [&] { return signals.requested(); };
  const auto backend = backend::make_backend(device);
  plan::Options plan = flags.plan;
  plan.model.dtype = graph::parse_dtype(output.dtype);
  if (!(flags.bucket_mb > 0)) throw UsageError("--bucket-mb {} must be more than 0", flags.bucket_mb);
  plan.bucket_bytes = static_cast<std::size_t>(flags.bucket_mb * (1 << 20));
  if (!backend->supports(graph::OpKind::conv, plan.model.dtype))
    throw UnavailableError(
        "the device {} does not support {} ({}); to predict without a GPU that does, use a step measured on "
        "one: --step {}",
        output.device, output.dtype, backend->description(), names_of_known_steps());
  if (!backend->device_memory())
    log_warning("measuring a step of this CPU, which takes a while; to predict for GPUs, use --step {}",
                names_of_known_steps());
  std::optional<graph::DType> wire;
  if (!flags.grad_dtype.empty()) wire = graph::parse_dtype(flags.grad_dtype);
  ProgressLine line("timing", "steps");
  try {
    const auto shape =
        bench::measure_step(plan, *backend, wire, flags.steps, [&](std::int64_t done, std::int64_t of) {
          line.update(done, of);
          return !signals.requested();
        });
    line.clear();
    if (!shape) return std::nullopt;
    return Step{*shape, plan.model.batch, backend->description()};
  } catch (const backend::Abandoned&) {
    return std::nullopt;
  }
}

void print_head(const Step& step, const PredictFlags& flags) {
  double bytes = 0, largest = 0;
  for (const auto& bucket : step.shape.buckets) {
    bytes += bucket.bytes;
    largest = std::max(largest, bucket.bytes);
  }
  const bench::Network& network = flags.scaling.network;
  fmt::print("step      {:.3f} ms alone, backward ends at {:.3f} ms; {}\n", 1e3 * step.shape.seconds,
             1e3 * step.shape.backward_end, step.source);
  fmt::print("gradients {} in {} buckets, the first at {:.3f} ms\n",
             format_bytes(static_cast<std::uint64_t>(bytes)), step.shape.buckets.size(),
             1e3 * step.shape.buckets.front().ready);
  fmt::print(
      "network   {:.3g} GB/s and {:.3g} us per GPU between nodes of {}, {:.3g} GB/s and {:.3g} us within\n",
      network.inter.bandwidth_at(largest) / 1e9, 1e6 * network.inter.latency, network.gpus_per_node,
      network.intra.bandwidth_at(largest) / 1e9, 1e6 * network.intra.latency);
  fmt::print(
      "losses    computing is {:.3g}% slower during the gradient exchange, step times differ by {:.3g}% "
      "between GPUs\n",
      100 * flags.scaling.contention, 100 * flags.scaling.spread);
  fmt::print(
      "ignored   other traffic, shared switches, reading data, batch norms over GPUs, and how the speed of a "
      "GPU\n"
      "          depends on the batch: efficiency is against one GPU with {}\n",
      step.batch > 0 ? fmt::format("the same {} images a step", step.batch) : "the same batch");
}

void print_table(const std::vector<bench::Prediction>& predictions, std::int64_t batch) {
  fmt::print("\n{:>6} {:>10} {:>10} {:>10} {:>10} {:>11} {:>11}  {}\n", "GPUs", "step ms", "comm ms",
             "exposed ms", "slowest ms", "efficiency", "images/s", "all-reduce");
  for (const bench::Prediction& p : predictions) {
    const double speed = static_cast<double>(batch) * p.gpus / p.step_seconds;
    fmt::print("{:>6} {:>10.3f} {:>10.3f} {:>10.3f} {:>10.3f} {:>10.1f}% {:>11}  {}\n", p.gpus,
               1e3 * p.step_seconds, 1e3 * p.communication_seconds, 1e3 * p.exposed_seconds,
               1e3 * p.straggler_seconds, 100 * p.efficiency, batch > 0 ? format_count(speed) : "-",
               p.collective);
  }
}

double error_of(double predicted, double measured) { return predicted / measured - 1; }

void print_check(const MeasuredStep& run, const bench::Prediction& p) {
  fmt::print(
      "\n{} ranks in {}: {:.3f} ms a step, {:.3f} ms of it exposed; "
      "predicted {:.3f} ms ({}%), {:.3f} ms exposed\n",
      run.ranks, run.folder, 1e3 * run.step_seconds, 1e3 * run.exposed_seconds, 1e3 * p.step_seconds,
      format_signed(100 * error_of(p.step_seconds, run.step_seconds), 1), 1e3 * p.exposed_seconds);
}

nlohmann::ordered_json check_record(const MeasuredStep& run, const bench::Prediction& p) {
  return {{"run", run.folder},
          {"measured_step_seconds", run.step_seconds},
          {"measured_exposed_seconds", run.exposed_seconds},
          {"prediction", to_json(p)},
          {"error", error_of(p.step_seconds, run.step_seconds)}};
}

std::string csv_of(const std::vector<bench::Prediction>& predictions) {
  std::string text =
      "gpus,step_seconds,communication_seconds,exposed_seconds,straggler_seconds,efficiency,collective\n";
  for (const bench::Prediction& p : predictions)
    text += fmt::format("{},{:.9f},{:.9f},{:.9f},{:.9f},{:.6f},{}\n", p.gpus, p.step_seconds,
                        p.communication_seconds, p.exposed_seconds, p.straggler_seconds, p.efficiency,
                        p.collective);
  return text;
}

nlohmann::ordered_json record_of(const std::vector<bench::Prediction>& predictions, const Step& step,
                                 const PredictFlags& flags) {
  const bench::Network& network = flags.scaling.network;
  const auto link = [](const bench::Link& of) {
    return nlohmann::ordered_json{{"bytes_per_second", of.bandwidth}, {"latency_seconds", of.latency}};
  };
  nlohmann::ordered_json json = bench_record("bench comm --predict");
  json.update({{"batch", step.batch},
               {"step_source", step.source},
               {"step", to_json(step.shape)},
               {"network",
                {{"between_nodes", link(network.inter)},
                 {"within_a_node", link(network.intra)},
                 {"gpus_per_node", network.gpus_per_node}}},
               {"collective", flags.collective},
               {"contention", flags.scaling.contention},
               {"spread", flags.scaling.spread},
               {"predictions", nlohmann::ordered_json::array()}});
  for (const bench::Prediction& p : predictions) json["predictions"].push_back(to_json(p));
  return json;
}

// The parsed flags, checked before anything is measured.
PredictFlags resolve(const PredictFlags& given) {
  PredictFlags flags = given;
  flags.scaling.network.inter = bench::parse_link(flags.link, "--link");
  flags.scaling.network.intra = bench::parse_link(flags.intra, "--intra");
  flags.scaling.best = flags.collective == "best";
  if (!flags.scaling.best) flags.scaling.collective = bench::parse_collective(flags.collective);
  if (flags.steps < 1) throw UsageError("--steps {} must be at least 1", flags.steps);
  bench::validate(flags.scaling);
  return flags;
}

}  // namespace

std::shared_ptr<PredictFlags> add_predict_options(CLI::App& command, CLI::Option* predict) {
  const auto flags = std::make_shared<PredictFlags>();
  const auto option = [&](const std::string& name, auto& value, const std::string& text) {
    return command.add_option(name, value, text)->group("With --predict")->needs(predict);
  };
  graph::ModelOptions& model = flags->plan.model;
  option("--gpus", flags->gpus, "Numbers of GPUs, separated by commas; a range doubles")
      ->capture_default_str();
  option("--link", flags->link,
         "Bandwidth and latency of a GPU's link to other nodes, or a .json file of bench comm to fit them to")
      ->capture_default_str();
  option("--intra", flags->intra, "The same for its link to the GPUs of its node")->capture_default_str();
  option("--gpus-per-node", flags->scaling.network.gpus_per_node, "GPUs per node")->capture_default_str();
  option("--collective", flags->collective, "best, ring, tree or hierarchical")->capture_default_str();
  option("--contention", flags->scaling.contention,
         "Fraction of its speed that computation loses during the gradient exchange, 0 to 1")
      ->capture_default_str();
  option("--spread", flags->scaling.spread,
         "Standard deviation of step times between GPUs, as a fraction: all wait for the slowest")
      ->capture_default_str();
  option("--step", flags->step,
         "Use this step instead of measuring one: a record of --predict, or " + names_of_known_steps() +
             " (ResNet-50 in fp16 with as many images)");
  option("--step-time", flags->step_time, "Scale the step to this time without communication, such as 27ms");
  option("--against", flags->against,
         "Run folder of several ranks, to compare with the prediction for as many GPUs")
      ->allow_extra_args(false);
  option("--model", model.model, "Model whose step is measured")->capture_default_str();
  option("--classes", model.classes, "Number of classes")->capture_default_str();
  option("--image-size", model.image_size, "Image height and width in pixels")->capture_default_str();
  option("-b,--batch-size", model.batch, "Batch size per GPU")->capture_default_str();
  option("--bucket-mb", flags->bucket_mb, "Size of all-reduce buckets in MiB")->capture_default_str();
  option("--grad-dtype", flags->grad_dtype,
         "Type in which gradients are exchanged (default: the type they are stored in)");
  option("--threads", flags->threads, "Compute threads on a CPU (0: all cores)")->capture_default_str();
  option("--steps", flags->steps, "Number of measured steps")->capture_default_str();
  return flags;
}

int run_prediction(const PredictFlags& given, const PredictOutput& output) {
  const PredictFlags flags = resolve(given);
  if (comm::find_world().size > 1)
    throw UsageError("--predict runs in one process: start it without launch, mpirun, srun or torchrun");
  const std::vector<std::size_t> counts = bench::parse_sizes(flags.gpus, "--gpus");
  for (const std::string& plot : output.plots) bench::check_chart_name(plot);
  std::optional<double> wanted;
  if (!flags.step_time.empty()) wanted = bench::parse_seconds(flags.step_time, "--step-time");

  std::vector<MeasuredStep> runs;
  for (const std::string& folder : flags.against) runs.push_back(read_measured(folder));

  ResultFile json(output.json), csv(output.csv);
  const StopSignals signals;
  std::optional<Step> step =
      flags.step.empty() ? measure_step(flags, output, signals) : read_step(flags.step);
  if (!step) {
    print_stderr("redline: stopped; nothing was written\n");
    return kSignalExit + signals.signal();
  }
  for (const MeasuredStep& run : runs) check_batch(run, *step);
  if (wanted) {
    step->shape = step->shape.scaled_to(*wanted);
    step->source += ", scaled to --step-time";
  }
  std::vector<bench::Prediction> predictions;
  bench::Chart chart{"scaling efficiency", "GPUs", "%", {{"efficiency", {}}}, false};
  for (const std::size_t count : counts) {
    predictions.push_back(bench::predict(step->shape, flags.scaling, static_cast<int>(count)));
    chart.series[0].points.emplace_back(static_cast<double>(count), 100 * predictions.back().efficiency);
  }
  print_head(*step, flags);
  print_table(predictions, step->batch);
  nlohmann::ordered_json record = record_of(predictions, *step, flags);
  for (const MeasuredStep& run : runs) {
    const bench::Prediction there = bench::predict(step->shape, flags.scaling, run.ranks);
    print_check(run, there);
    record["against"].push_back(check_record(run, there));
  }
  fmt::print("\n{}", bench::text_chart(chart, 72));
  json.write(record);
  csv.write(csv_of(predictions));
  for (const std::string& plot : output.plots) write_chart(chart, plot);
  return 0;
}

}  // namespace redline::cli
