// redline bench throughput: images/s by batch size, with everything that explains them.
#include <filesystem>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <system_error>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/signals.h"
#include "base/text.h"
#include "bench/chart.h"
#include "bench/throughput.h"
#include "cli/bench.h"
#include "cli/command.h"
#include "cli/progress_line.h"

namespace redline::cli {
namespace {

namespace fs = std::filesystem;

struct Flags {
  bench::ThroughputOptions options;
  std::string folder = "throughput_data";
  std::string compare;
  std::vector<std::string> plots;
};

std::string or_dash(const std::optional<double>& value, const char* unit) {
  return value ? fmt::format("{:.0f}{}", *value, unit) : "-";
}

void print_row(const bench::Throughput& r) {
  if (!r.measured()) {
    fmt::print("{:>6}  {}\n", r.batch, r.refusal);
    return;
  }
  const Summary summary = summarize(r.step_seconds);
  const ConfidenceInterval interval = r.images_per_second_interval();
  const double half = (interval.high - interval.low) / 2 / r.images_per_second();
  fmt::print("{:>6} {:>9.1f} {:>5.1f}% {:>9.3f} {:>9.3f} {:>9.3f} {:>8} {:>5} {:>9} {:>6} {:>8}\n", r.batch,
             r.images_per_second(), 100 * half, 1e3 * summary.median, 1e3 * summary.p90, 1e3 * summary.p99,
             format_bytes(r.memory_bytes), or_dash(r.telemetry.use_pct, "%"),
             or_dash(r.telemetry.sm_clock_mhz ? r.telemetry.sm_clock_mhz : r.telemetry.cpu_clock_mhz, " MHz"),
             or_dash(r.telemetry.power_w, " W"),
             r.images_per_joule() > 0 ? fmt::format("{:.2f}", r.images_per_joule()) : "-");
}

void print_head(const bench::Throughput& r) {
  fmt::print("{}, {}: {}\n", r.model, r.dtype, r.device.empty() ? "nothing measured" : r.device);
  fmt::print("{:>6} {:>9} {:>6} {:>9} {:>9} {:>9} {:>8} {:>5} {:>9} {:>6} {:>8}\n", "batch", "images/s", "+-",
             "p50 ms", "p90 ms", "p99 ms", "memory", "GPU", "clock", "power", "images/J");
}

bench::Chart chart_of(const std::vector<bench::Throughput>& results) {
  bench::Chart chart{"training throughput", "batch size", "images/s", {}, false};
  for (const bench::Throughput& r : results) {
    const std::string name = fmt::format("{} {}", r.model, r.dtype);
    if (!r.measured()) continue;
    if (chart.series.empty() || chart.series.back().name != name) chart.series.push_back({name, {}});
    chart.series.back().points.emplace_back(static_cast<double>(r.batch), r.images_per_second());
  }
  return chart;
}

// batch_64.log, or resnet18_fp16_batch_64.log where there are several models or types.
std::string log_name(const bench::Throughput& r, const bench::ThroughputOptions& options) {
  std::string name;
  if (options.models.size() > 1) name += r.model + "_";
  if (options.dtypes.size() > 1) name += r.dtype + "_";
  return fmt::format("{}batch_{}.log", name, r.batch);
}

nlohmann::ordered_json record_of(const std::vector<bench::Throughput>& results, const Flags& flags) {
  const train::Config& config = flags.options.config;
  nlohmann::ordered_json json = bench_record("bench throughput");
  json.update({{"data", config.data.path},
               {"image_size", config.model.image_size},
               {"stop_iteration", flags.options.stop_iteration},
               {"warmup", flags.options.warmup},
               {"deterministic", config.device.deterministic},
               {"input_copy", config.device.input_copy},
               {"results", nlohmann::ordered_json::array()}});
  for (const bench::Throughput& r : results) json["results"].push_back(to_json(r));
  return json;
}

void print_comparison(const bench::ThroughputComparison& comparison, const std::string& path) {
  fmt::print("\ncompared with {}:\n", path);
  if (comparison.batches.empty()) {
    fmt::print("no model, type and batch size is in both\n");
    return;
  }
  const auto verdict = [](const Change& change) {
    if (change.interval.coverage <= 0) return std::string("too few steps to say more");
    return fmt::format("95% interval {:+.1f}% to {:+.1f}%: {}", 100 * change.interval.low,
                       100 * change.interval.high,
                       !change.beyond_noise() ? "within noise"
                       : change.change > 0    ? "faster"
                                              : "slower");
  };
  for (const bench::ThroughputChange& c : comparison.batches) {
    fmt::print("  {} {} batch {}: {:.1f} -> {:.1f} images/s, {:+.1f}%, {}\n", c.model, c.dtype, c.batch,
               c.before, c.after, 100 * c.change.change, verdict(c.change));
  }
  if (comparison.batches.size() > 1)
    fmt::print("  all {} as pairs: {:+.1f}%, {}\n", comparison.batches.size(),
               100 * comparison.overall.change, verdict(comparison.overall));
}

nlohmann::ordered_json read_record(const std::string& path) {
  try {
    return nlohmann::ordered_json::parse(read_file(path));
  } catch (const nlohmann::json::exception& error) {
    throw DataError("--compare {}: it is no JSON: {}", path, error.what());
  }
}

int run_throughput(const Flags& flags) {
  require_optimised_build();
  bench::validate(flags.options);
  for (const std::string& plot : flags.plots) bench::check_chart_name(plot);
  std::optional<nlohmann::ordered_json> before;  // read first: it may be the file that is written below
  if (!flags.compare.empty()) {
    before = read_record(flags.compare);
    bench::compare_throughput(*before, flags.compare, {});
  }
  std::error_code error;
  fs::create_directories(flags.folder, error);
  if (error) throw IoError("cannot make {}: {}", flags.folder, error.message());

  const StopSignals signals;
  // In images: large batches are most of the work.
  ProgressLine line("measuring", "images");
  std::string head;
  const auto& batches = flags.options.batch_sizes;
  const auto variants = static_cast<std::int64_t>(flags.options.models.size() * flags.options.dtypes.size());
  const std::int64_t images = variants * flags.options.stop_iteration *
                              std::accumulate(batches.begin(), batches.end(), std::int64_t{0});
  std::int64_t measured = 0;  // images
  const auto results = bench::bench_throughput(
      flags.options,
      [&](const bench::Throughput& now, std::int64_t step, std::int64_t) {
        line.update(measured + now.batch * step, images);
        return !signals.requested();
      },
      [&](const bench::Throughput& r) {
        measured += r.batch * flags.options.stop_iteration;
        line.clear();
        if (const std::string now = r.model + r.dtype; now != head) {
          print_head(r);
          head = now;
        }
        print_row(r);
        write_file_atomically(fs::path(flags.folder) / log_name(r, flags.options), throughput_log(r),
                              Sync::no);
      });
  line.clear();
  const fs::path folder = flags.folder;
  write_file_atomically(folder / "throughput.csv", throughput_csv(results), Sync::no);
  write_file_atomically(
      folder / "throughput.json",
      record_of(results, flags).dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n",
      Sync::no);
  const bench::Chart chart = chart_of(results);
  if (!chart.series.empty()) fmt::print("\n{}", bench::text_chart(chart, 72));
  for (const std::string& plot : flags.plots) write_chart(chart, plot);
  if (before) print_comparison(compare_throughput(*before, flags.compare, results), flags.compare);
  fmt::print("\nwritten to {}\n", flags.folder);
  if (!signals.requested()) return 0;
  fmt::print(stderr, "redline: stopped after {} of {} measurements\n", results.size(),
             variants * static_cast<std::int64_t>(batches.size()));
  return 128 + signals.signal();
}

}  // namespace

void add_bench_throughput(CLI::App& group, Context& context) {
  CLI::App& command = add_command(
      group, "throughput", "Time training steps by batch size: images/s, step times, memory, clocks, power",
      {"redline bench throughput",
       "redline bench throughput --batch-sizes 64,128,256 --stop-iteration 110 --dtype fp16",
       "redline bench throughput --data imagenet --plot throughput.svg",
       "redline bench throughput -o after --compare before/throughput.json"});
  const auto flags = std::make_shared<Flags>();
  bench::ThroughputOptions& o = flags->options;
  o.config.data.path = "synthetic";
  const auto list = [](CLI::Option* option) { option->delimiter(',')->allow_extra_args(false); };
  list(command.add_option("--batch-sizes,-b", o.batch_sizes, "Images in a step, with commas")
           ->capture_default_str());
  list(command.add_option("--models,--model", o.models, "Networks, with commas")->capture_default_str());
  list(command
           .add_option("--dtype", o.dtypes, "Types of activations, with commas: fp32, tf32, bf16, fp16, auto")
           ->capture_default_str());
  command.add_option("--stop-iteration", o.stop_iteration, "Steps of each measurement, the warm-up included")
      ->capture_default_str();
  command.add_option("--warmup", o.warmup, "Of these, steps that are not counted")->capture_default_str();
  command.add_option("--data", o.config.data.path, "A data set, or synthetic")->capture_default_str();
  command.add_option("--image-size", o.config.model.image_size, "Pixels of a side")->capture_default_str();
  command.add_option("--classes", o.config.model.classes, "Number of classes");
  command.add_option("--device", o.config.device.name, "Device to run on")->capture_default_str();
  command.add_option("--threads", o.config.device.threads, "Threads that compute; 0 is one a core")
      ->capture_default_str();
  command.add_option("--workers,-j", o.config.data.workers, "Threads that decode; 0: chosen from the cores")
      ->capture_default_str();
  command.add_option("--input-copy", o.config.device.input_copy, "How batches get to a GPU, as train has it")
      ->capture_default_str();
  command.add_flag("--deterministic", o.config.device.deterministic, "Only kernels that give the same bits");
  command
      .add_option("--output-dir,-o", flags->folder, "Folder for the logs, throughput.csv and throughput.json")
      ->capture_default_str();
  command.add_option("--compare", flags->compare,
                     "A throughput.json from before: say what changed beyond noise");
  command.add_option("--plot", flags->plots, "Also draw a chart: a file that ends in .svg or .png");
  on_run(command, context, [flags] { return run_throughput(*flags); });
}

}  // namespace redline::cli
