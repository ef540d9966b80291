// redline bench comm: how fast ranks exchange numbers, and what that means for training on many.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "backend/cuda_plugin.h"
#include "base/build_info.h"
#include "base/error.h"
#include "base/log.h"
#include "base/signals.h"
#include "base/text.h"
#include "bench/chart.h"
#include "bench/comm_bench.h"
#include "bench/sizes.h"
#include "cli/bench.h"
#include "cli/bench_predict.h"
#include "cli/command.h"
#include "cli/progress_line.h"
#include "comm/connect.h"

namespace redline::cli {
namespace {

struct CommFlags {
  bench::CommBenchOptions options;
  std::vector<std::string> operations = {"all-reduce", "reduce-scatter+all-gather", "broadcast"};
  std::string sizes = "128-128M", dtype = "fp32", device = "auto", topology;
  double timeout = 60, join_timeout = 300;
  std::string interface;
  std::string json, csv;
  std::vector<std::string> plots;
};

std::chrono::milliseconds milliseconds_of(double seconds, const char* flag) {
  if (!(seconds > 0 && seconds <= 1e6)) throw UsageError("{} {} must be above 0, in seconds", flag, seconds);
  return std::chrono::milliseconds(static_cast<std::int64_t>(1000 * seconds));
}

// What must be the same on every rank: they would wait for each other otherwise.
comm::Facts facts_of(const CommFlags& flags) {
  const bench::CommBenchOptions& o = flags.options;
  return {{"version", build_info().version},
          {"commit", build_info().commit},
          {"command", "bench comm"},
          {"--operations", fmt::format("{}", fmt::join(flags.operations, ","))},
          {"--sizes", flags.sizes},
          {"--dtype", flags.dtype},
          {"--device", flags.device},
          {"--algorithms", fmt::format("{}", fmt::join(o.algorithms, ","))},
          {"--protocols", fmt::format("{}", fmt::join(o.protocols, ","))},
          {"--repeat", std::to_string(o.repeat)},
          {"--warmup", std::to_string(o.warmup)},
          {"--seconds", fmt::format("{}", o.seconds)}};
}

std::shared_ptr<comm::Communicator> join(const CommFlags& flags, const comm::World& world,
                                         const std::atomic<bool>& stop) {
  comm::ConnectOptions options;
  options.world = world;
  options.facts = facts_of(flags);
  options.limits = {milliseconds_of(flags.join_timeout, "--join-timeout"),
                    milliseconds_of(flags.timeout, "--comm-timeout")};
  options.stop = &stop;
  options.interface = flags.interface;
  options.on_stuck = comm::end_process(world.rank);
  return comm::connect(options);
}

void resolve_device(CommFlags& flags) {
  if (flags.device == "auto") flags.device = backend::why_no_cuda().empty() ? "cuda" : "cpu";
  if (flags.device != "cpu" && flags.device != "cuda")
    throw UsageError("--device {}: choose among auto, cpu (Gloo), cuda (NCCL)", flags.device);
  if (!flags.topology.empty() && flags.device != "cuda")
    throw UsageError("--topology needs NCCL: add --device cuda");
}

// In GB/s; small messages reach a thousandth of one.
std::string rate_text(double rate) {
  return rate < 1e8 ? fmt::format("{:.2g}", rate / 1e9) : fmt::format("{:.3f}", rate / 1e9);
}

// Rank 0's part: a table that grows as measurements end.
class Table {
 public:
  void add(const bench::CommTiming& t) {
    const std::string head = fmt::format("{}, {}", bench::name_of(t.operation), t.algorithm);
    if (head != head_) {
      fmt::print("\n{}\n{:>10} {:>6} {:>12} {:>12} {:>10} {:>10}\n", head, "size", "times", "p50 us",
                 "p90 us", "alg. GB/s", "bus GB/s");
      head_ = head;
    }
    if (!t.measured()) {
      fmt::print("{:>10} {}: {}\n", format_bytes(t.bytes),
                 t.status == bench::CommStatus::wrong ? "wrong result" : "not available", t.reason);
      return;
    }
    fmt::print("{:>10} {:>6} {:>12.1f} {:>12.1f} {:>10} {:>10}\n", format_bytes(t.bytes), t.seconds.size(),
               1e6 * t.median_seconds(), 1e6 * t.p90_seconds(), rate_text(t.algorithm_bandwidth()),
               rate_text(t.bus_bandwidth()));
  }

 private:
  std::string head_;
};

bench::Chart chart_of(const std::vector<bench::CommTiming>& timings) {
  bench::Chart chart{"bus bandwidth", "size", "MB/s", {}, /*bytes=*/true};
  for (const bench::CommTiming& t : timings) {
    if (!t.measured()) continue;
    const std::string name = fmt::format("{} {}", bench::name_of(t.operation), t.algorithm);
    if (chart.series.empty() || chart.series.back().name != name) chart.series.push_back({name, {}});
    chart.series.back().points.emplace_back(static_cast<double>(t.bytes), t.bus_bandwidth() / 1e6);
  }
  return chart;
}

nlohmann::ordered_json record_of(const std::vector<bench::CommTiming>& timings, const CommFlags& flags,
                                 const comm::Communicator& control, const std::string& fabric) {
  nlohmann::ordered_json json = bench_record("bench comm");
  json.update({{"fabric", fabric},
               {"ranks", control.size()},
               {"hosts", nlohmann::ordered_json::array()},
               {"dtype", flags.dtype},
               {"repeat", flags.options.repeat},
               {"warmup", flags.options.warmup},
               {"results", nlohmann::ordered_json::array()}});
  for (int rank = 0; rank < control.size(); ++rank) json["hosts"].push_back(control.member(rank).host);
  for (const bench::CommTiming& t : timings) json["results"].push_back(to_json(t));
  return json;
}

// Two series are enough for a look in the terminal: all of them would fill pages.
bench::Chart short_chart(const bench::Chart& whole) {
  bench::Chart chart = whole;
  if (chart.series.size() > 2) chart.series.resize(2);
  return chart;
}

int run_measurement(CommFlags& flags) {
  require_optimised_build();
  bench::CommBenchOptions& options = flags.options;
  options.operations.clear();
  for (const std::string& name : flags.operations) options.operations.push_back(bench::parse_operation(name));
  options.sizes = bench::parse_sizes(flags.sizes);
  options.type = bench::parse_comm_type(flags.dtype);
  bench::validate(options);
  resolve_device(flags);
  for (const std::string& plot : flags.plots) bench::check_chart_name(plot);
  const comm::World world = comm::find_world();
  if (world.size == 1)
    throw UsageError(
        "bench comm needs several ranks, and this process is alone: start it as 'redline launch -g 2 -- "
        "bench comm', or with mpirun, srun or torchrun");

  ResultFile json(world.rank == 0 ? flags.json : ""), csv(world.rank == 0 ? flags.csv : "");
  const StopSignals signals;
  const auto control = join(flags, world, signals.flag());
  const auto fabric =
      flags.device == "cuda" ? backend::load_cuda_fabric({control, flags.topology}) : control->make_fabric();
  const bool first = control->rank() == 0;
  if (first) fmt::print("{} ranks, {}, {}\n", control->size(), fabric->description(), flags.dtype);
  std::optional<ProgressLine> line;
  if (first) line.emplace("measuring", "sizes");
  Table table;
  const auto timings = bench::bench_comm(
      options, *fabric, *control,
      [&](std::int64_t done, std::int64_t of) {
        if (line) line->update(done, of);
        return !signals.requested();
      },
      [&](const bench::CommTiming& t) {
        if (!first) return;
        line->clear();
        table.add(t);
      });
  if (first) {
    line->clear();
    json.write(record_of(timings, flags, *control, fabric->description()));
    csv.write(comm_csv(timings));
    const bench::Chart chart = chart_of(timings);
    if (!chart.series.empty()) fmt::print("\n{}", bench::text_chart(short_chart(chart), 72));
    for (const std::string& plot : flags.plots) write_chart(chart, plot);
  }
  // One rank's is enough.
  if (const auto signal = static_cast<int>(std::ranges::max(control->gather(signals.signal())));
      signal != 0) {
    if (first) print_stderr("redline: stopped after {} measurements\n", timings.size());
    return kSignalExit + signal;
  }
  const auto wrong = std::ranges::count(timings, bench::CommStatus::wrong, &bench::CommTiming::status);
  if (wrong > 0) throw InternalError("{} of {} measurements gave wrong results", wrong, timings.size());
  return 0;
}

}  // namespace

void add_bench_comm(CLI::App& group, Context& context) {
  CLI::App& command = add_command(
      group, "comm", "Time collectives between ranks by size: latency, algorithm and bus bandwidth",
      {"redline launch -g 2 -- bench comm",
       "redline launch -g 4 -- bench comm --sizes 1K-16M --algorithms ring",
       "redline launch -g 2 -- bench comm --json comm.json --csv comm.csv --plot comm.svg",
       "redline bench comm --predict --dtype fp16 -b 64 --link 400Gb/s,5us --gpus-per-node 8 --plot "
       "scaling.svg",
       "redline bench comm --predict -b 8 --link comm.json --gpus-per-node 1 --gpus 2-64"});
  const auto flags = std::make_shared<CommFlags>();
  const auto predict = std::make_shared<bool>(false);
  bench::CommBenchOptions& o = flags->options;
  const auto list = [](CLI::Option* option) { option->delimiter(',')->allow_extra_args(false); };
  list(command
           .add_option("--operations", flags->operations,
                       "all-reduce, reduce-scatter, all-gather, reduce-scatter+all-gather, broadcast")
           ->capture_default_str());
  command.add_option("--sizes", flags->sizes, "Bytes, with commas; a range doubles: 128-128M")
      ->capture_default_str();
  list(command.add_option("--algorithms", o.algorithms,
                          "Only these algorithms, for operations that have them (Gloo: ring, bcube; NCCL: "
                          "auto, ring, tree, pat, nvls, nvlstree; default: all)"));
  list(command.add_option("--protocols", o.protocols,
                          "Only these protocols (NCCL: ll, ll128, simple; default: all)"));
  command
      .add_option("--dtype", flags->dtype,
                  "Type of the exchanged values: fp32, fp16 or bf16; with --predict, of the training")
      ->capture_default_str();
  command.add_option("--device", flags->device, "cpu measures Gloo, cuda NCCL; auto: cuda if possible")
      ->capture_default_str();
  command.add_option("--topology", flags->topology,
                     "File for NCCL's view of the machine; its rings and trees go to FILE.graphs");
  command.add_option("--repeat", o.repeat, "Timed repetitions of each size")->capture_default_str();
  command
      .add_option("--warmup", o.warmup, "Untimed repetitions before these; at least one, to check the result")
      ->capture_default_str();
  command.add_option("--seconds", o.seconds, "Time limit per size; large sizes are repeated less often")
      ->capture_default_str();
  command
      .add_option("--comm-timeout", flags->timeout,
                  "Seconds after which a rank that does not answer counts as lost")
      ->capture_default_str();
  command.add_option("--join-timeout", flags->join_timeout, "Seconds to wait for all ranks to join")
      ->capture_default_str();
  command.add_option("--comm-interface", flags->interface,
                     "Network interface for Gloo (default: the one to rank 0)");
  command.add_option("--json", flags->json, "Also write the result to this file")->type_name("FILE");
  command.add_option("--csv", flags->csv, "Also write the table to this file")->type_name("FILE");
  command.add_option("--plot", flags->plots, "Also draw a chart: a file that ends in .svg or .png");
  CLI::Option* const wanted = command.add_flag(
      "--predict", *predict, "Predict training on many GPUs instead, from a step measured here");
  const auto prediction = add_predict_options(command, wanted);
  on_run(command, context, [flags, predict, prediction] {
    if (!*predict) return run_measurement(*flags);
    return run_prediction(*prediction, {flags->device, flags->dtype, flags->json, flags->csv, flags->plots});
  });
}

}  // namespace redline::cli
