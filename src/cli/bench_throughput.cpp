// redline bench throughput: images/s by batch size, with what explains them.
#include <algorithm>
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
#include "base/log.h"
#include "base/quantity.h"
#include "base/signals.h"
#include "base/text.h"
#include "bench/chart.h"
#include "bench/throughput.h"
#include "bench/throughput_compare.h"
#include "cli/bench.h"
#include "cli/command.h"
#include "cli/progress_line.h"
#include "profile/power_limit.h"
#include "train/setup.h"

namespace redline::cli {
namespace {

namespace fs = std::filesystem;

struct ThroughputFlags {
  bench::ThroughputOptions options;
  std::string folder = "throughput_data";
  std::string compare;
  bool compare_unlike = false;
  std::vector<std::string> plots;
};

std::string or_dash(const std::optional<double>& value, const char* unit, int digits = 0) {
  return value ? fmt::format("{:.{}f}{}", *value, digits, unit) : "-";
}

std::string batch_text(const bench::Throughput& r) {
  return r.power_limit ? fmt::format("{}@{}W", r.batch, *r.power_limit) : std::to_string(r.batch);
}

void print_row(const bench::Throughput& r) {
  if (r.measured()) {
    const Summary summary = summarize(r.step_seconds());
    const ConfidenceInterval interval = r.images_per_second_interval();
    const profile::TelemetrySummary t = r.telemetry();
    std::optional<double> half;
    if (interval.coverage > 0) half = 100 * (interval.high - interval.low) / 2 / r.images_per_second();
    fmt::print(
        "{:>9} {:>6} {:>9.1f} {:>6} {:>9.3f} {:>9.3f} {:>9.3f} {:>8} {:>5} {:>9} {:>6} {:>8} {:>8} {}\n",
        batch_text(r), r.rounds.size(), r.images_per_second(), or_dash(half, "%", 1), 1e3 * summary.median,
        1e3 * summary.p90, 1e3 * summary.p99, format_bytes(r.memory_bytes), or_dash(t.use_pct, "%"),
        or_dash(t.sm_clock_mhz ? t.sm_clock_mhz : t.cpu_clock_mhz, " MHz"), or_dash(t.power_w, " W"),
        or_dash(r.joules_per_step(), "", 2), or_dash(r.images_per_joule(), "", 2),
        bench::power_bound(t).value_or(false) ? "power" : "-");
  }
  if (!r.failure.empty())
    fmt::print("{:>9}  {}{}\n", batch_text(r), r.measured() ? "failed then: " : "", r.failure);
}

void print_head(const bench::Throughput& r) {
  fmt::print("{}, {}: {}\n", r.model, r.dtype, r.device.empty() ? "nothing measured" : r.device);
  fmt::print("{:>9} {:>6} {:>9} {:>6} {:>9} {:>9} {:>9} {:>8} {:>5} {:>9} {:>6} {:>8} {:>8} {}\n", "batch",
             "rounds", "images/s", "+-", "p50 ms", "p90 ms", "p99 ms", "memory", "GPU", "clock", "power",
             "J/step", "images/J", "bound");
}

void print_table(const std::vector<bench::Throughput>& results) {
  std::string head;
  for (const bench::Throughput& r : results) {
    if (!r.measured() && r.failure.empty()) continue;
    if (const std::string now = r.model + r.dtype; now != head) {
      print_head(r);
      head = now;
    }
    print_row(r);
  }
  for (const bench::Throughput& r : results)
    for (const std::string& text : r.disturbances())
      fmt::print("disturbed: {} {} batch {}: {}\n", r.model, r.dtype, batch_text(r), text);
  const bool bound = std::ranges::any_of(
      results, [](const bench::Throughput& r) { return bench::power_bound(r.telemetry()).value_or(false); });
  if (bound)
    fmt::print(
        "bound by power: the GPU draws all that its power limit allows, and its clock is below the "
        "highest\n");
}

bench::Chart chart_of(const std::vector<bench::Throughput>& results) {
  bench::Chart chart{"training throughput", "batch size", "images/s", {}, false};
  for (const bench::Throughput& r : results) {
    std::string name = fmt::format("{} {}", r.model, r.dtype);
    if (r.power_limit) name += fmt::format(" {} W", *r.power_limit);
    if (!r.measured()) continue;
    auto series = std::ranges::find(chart.series, name, &bench::Series::name);
    if (series == chart.series.end()) series = chart.series.insert(series, {name, {}});
    series->points.emplace_back(static_cast<double>(r.batch), r.images_per_second());
  }
  return chart;
}

// batch_64.log, or resnet18_fp16_batch_64_400W.log where there are several models, types or power limits.
std::string log_name(const bench::Throughput& r, const bench::ThroughputOptions& options) {
  std::string name;
  if (options.models.size() > 1) name += r.model + "_";
  if (options.dtypes.size() > 1) name += r.dtype + "_";
  name += fmt::format("batch_{}", r.batch);
  if (options.power_limits.size() > 1) name += fmt::format("_{}W", *r.power_limit);
  return name + ".log";
}

nlohmann::ordered_json record_of(const std::vector<bench::Throughput>& results,
                                 const ThroughputFlags& flags) {
  const train::Config& config = flags.options.config;
  nlohmann::ordered_json json = bench_record("bench throughput");
  json["schema"] = 2;
  json.update({{"data", config.data.path},
               {"image_size", config.model.image_size},
               {"stop_iteration", flags.options.stop_iteration},
               {"warmup", flags.options.warmup},
               {"rounds", flags.options.rounds},
               {"threads", config.device.threads},
               {"workers", config.data.workers},
               {"deterministic", config.device.deterministic},
               {"input_copy", config.device.input_copy},
               {"results", nlohmann::ordered_json::array()}});
  for (const bench::Throughput& r : results)
    if (r.measured() || !r.failure.empty()) json["results"].push_back(to_json(r));
  return json;
}

std::string verdict(const bench::ThroughputChange& change) {
  const auto percent = [](double part) { return format_signed(100 * part, 1) + "%"; };
  if (change.interval.coverage <= 0)
    return fmt::format(
        "{}; {}", percent(change.change),
        std::min(change.rounds_before, change.rounds_after) < 2
            ? "with fewer than 2 rounds each, the spread is unknown and nothing can be said"
            : "too few rounds, or too uneven, to compare: use more --rounds on a quiet machine");
  return fmt::format("{}, 95% interval {} to {}: {}", percent(change.change), percent(change.interval.low),
                     percent(change.interval.high),
                     !change.differs()   ? "no difference beyond the spread"
                     : change.change > 0 ? "faster in these two sweeps"
                                         : "slower in these two sweeps");
}

void print_comparison(const bench::ThroughputComparison& comparison, const ThroughputFlags& flags) {
  fmt::print("\ncompared with {}:\n", flags.compare);
  for (const bench::ThroughputDifference& difference : comparison.differences)
    fmt::print("  {}: {}: {} | {}\n", difference.unlike ? "unlike" : "differs", difference.name,
               difference.before, difference.after);
  if (comparison.rows.empty()) {
    fmt::print("  no model, type and batch size is in both sweeps\n");
    return;
  }
  if (comparison.unlike() && !flags.compare_unlike) {
    fmt::print("  not compared: the work or the device differs; --compare-unlike compares anyway\n");
    return;
  }
  for (const bench::ThroughputChange& row : comparison.rows)
    fmt::print("  {}: {:.1f} -> {:.1f} images/s in the mean of rounds, {}\n", row.setting, row.before,
               row.after, verdict(row));
  if (comparison.overall)
    fmt::print("  {}, round by round: {}\n", comparison.overall->setting, verdict(*comparison.overall));
  fmt::print(
      "  The sweeps ran at different times, under different conditions. To settle it, alternate runs:\n"
      "    redline bench ab --binary-a BEFORE --binary-b AFTER --model {} -b {} -- --\n",
      flags.options.models.front(), flags.options.batch_sizes.back());
}

nlohmann::ordered_json read_sweep(const std::string& path) {
  try {
    return nlohmann::ordered_json::parse(read_file(path));
  } catch (const nlohmann::json::exception& error) {
    throw DataError("--compare {}: it is not JSON: {}", path, error.what());
  }
}

// Rewritten after every measurement, so that nothing is lost however the sweep ends.
void write_files(const std::vector<bench::Throughput>& results, const ThroughputFlags& flags) {
  const fs::path folder = flags.folder;
  write_file_atomically(folder / "throughput.csv", throughput_csv(results), Sync::no);
  write_file_atomically(
      folder / "throughput.json",
      record_of(results, flags).dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n",
      Sync::no);
}

// Shows the progress of the sweep in images: large batches are most of the work.
class SweepProgress {
 public:
  explicit SweepProgress(const bench::ThroughputOptions& options) : options_(options) {
    const auto& batches = options.batch_sizes;
    const auto variants = options.models.size() * options.dtypes.size() *
                          std::max<std::size_t>(1, options.power_limits.size()) *
                          static_cast<std::size_t>(options.rounds);
    images_ = static_cast<std::int64_t>(variants) * options.stop_iteration *
              std::accumulate(batches.begin(), batches.end(), std::int64_t{0});
  }
  void step(const bench::Throughput& now, std::int64_t step) {
    line_.update(before_ + now.batch * step, images_);
  }
  void done(const bench::Throughput& now) {
    before_ += now.batch * options_.stop_iteration;
    // A setting that failed is not tried again.
    if (!now.failure.empty())
      before_ += now.batch * options_.stop_iteration *
                 (options_.rounds - 1 - static_cast<std::int64_t>(now.rounds.size()));
  }
  void clear() { line_.clear(); }

 private:
  const bench::ThroughputOptions& options_;
  ProgressLine line_{"measuring", "images"};
  std::int64_t images_ = 0, before_ = 0;
};

std::vector<bench::Throughput> sweep(ThroughputFlags flags, const StopSignals& signals) {
  std::optional<profile::PowerLimit> limit;
  if (!flags.options.power_limits.empty()) {
    limit.emplace();  // first: it forks, which must happen before this process has threads
    limit->open(train::open_device(flags.options.config)->pci_address(), flags.options.power_limits,
                "--power-limits");
  }
  flags.options.stop = &signals.flag();
  SweepProgress progress(flags.options);
  bench::ThroughputHooks hooks;
  hooks.progress = [&](const bench::Throughput& now, int, std::int64_t step) {
    progress.step(now, step);
    return !signals.requested();
  };
  hooks.done = [&](const std::vector<bench::Throughput>& all, const bench::Throughput& now) {
    progress.done(now);
    write_file_atomically(fs::path(flags.folder) / log_name(now, flags.options), throughput_log(now),
                          Sync::no);
    write_files(all, flags);
  };
  hooks.set_power_limit = [&](int watts) { limit->set(watts); };
  auto results = bench::bench_throughput(flags.options, hooks);
  progress.clear();
  return results;
}

int run_throughput(const ThroughputFlags& flags) {
  require_optimised_build();
  bench::validate(flags.options);
  for (const std::string& plot : flags.plots) bench::check_chart_name(plot);
  std::optional<nlohmann::ordered_json> before;  // read first: the same file may be written below
  if (!flags.compare.empty()) {
    before = read_sweep(flags.compare);
    bench::compare_throughput(*before, flags.compare, record_of({}, flags));
  }
  std::error_code error;
  fs::create_directories(flags.folder, error);
  if (error) throw IoError("cannot create {}: {}", flags.folder, error.message());
  const StopSignals signals;
  const auto results = sweep(flags, signals);
  print_table(results);
  const bench::Chart chart = chart_of(results);
  if (!chart.series.empty()) fmt::print("\n{}", bench::text_chart(chart, 72));
  for (const std::string& plot : flags.plots) write_chart(chart, plot);
  if (before)
    print_comparison(bench::compare_throughput(*before, flags.compare, record_of(results, flags)), flags);
  std::size_t rounds = 0;
  for (const bench::Throughput& r : results) rounds += r.rounds.size();
  const auto tried = [](const bench::Throughput& r) { return r.measured() || !r.failure.empty(); };
  if (std::ranges::any_of(results, tried)) fmt::print("\nwritten to {}\n", flags.folder);
  if (signals.requested()) {
    print_stderr("redline: stopped after {} of {} measurements\n", rounds,
                 results.size() * static_cast<std::size_t>(flags.options.rounds));
    return kSignalExit + signals.signal();
  }
  if (rounds > 0) return 0;
  print_stderr("redline: error: nothing could be measured: {}\n", results.front().failure);
  return static_cast<int>(results.front().failure_code);
}

}  // namespace

void add_bench_throughput(CLI::App& group, Context& context) {
  CLI::App& command = add_command(
      group, "throughput", "Time training steps by batch size: images/s, step times, memory, clocks, power",
      {"redline bench throughput",
       "redline bench throughput --batch-sizes 64,128,256 --stop-iteration 110 --dtype fp16",
       "redline bench throughput --data imagenet --plot throughput.svg",
       "redline bench throughput -b 256 --dtype fp16 --power-limits 400,500,600,700",
       "redline bench throughput -o after --compare before/throughput.json"});
  const auto flags = std::make_shared<ThroughputFlags>();
  bench::ThroughputOptions& o = flags->options;
  o.config.data.path = "synthetic";
  const auto list = [](CLI::Option* option) { option->delimiter(',')->allow_extra_args(false); };
  list(command.add_option("--batch-sizes,-b", o.batch_sizes, "Batch sizes, separated by commas")
           ->capture_default_str());
  list(
      command.add_option("--models,--model", o.models, "Models, separated by commas")->capture_default_str());
  list(command
           .add_option("--dtype", o.dtypes,
                       "Precisions of activations, separated by commas: fp32, tf32, bf16, fp16, auto")
           ->capture_default_str());
  command
      .add_option("--stop-iteration", o.stop_iteration, "Steps of each measurement, including the warm-up")
      ->capture_default_str();
  command.add_option("--warmup", o.warmup, "Of these, steps that are not timed")->capture_default_str();
  command.add_option("--rounds", o.rounds, "Measurements of each setting, in another order each round")
      ->capture_default_str();
  list(command.add_option(
      "--power-limits", o.power_limits,
      "Measure at each of these power limits of the GPU, in watts, separated by commas; needs root"));
  command.add_option("--data", o.config.data.path, "A data set, or synthetic")->capture_default_str();
  command.add_option("--image-size", o.config.model.image_size, "Image height and width in pixels")
      ->capture_default_str();
  command.add_option("--classes", o.config.model.classes, "Number of classes");
  command.add_option("--device", o.config.device.name, "cuda, cuda:N, cpu or auto")->capture_default_str();
  command.add_option("--threads", o.config.device.threads, "Compute threads on a CPU (0: all cores)")
      ->capture_default_str();
  command
      .add_option("--workers,-j", o.config.data.workers,
                  "Threads that decode images (0: chosen from the number of cores)")
      ->capture_default_str();
  command
      .add_option("--input-copy", o.config.device.input_copy, "How batches are copied to a GPU, as in train")
      ->capture_default_str();
  command.add_flag("--deterministic", o.config.device.deterministic,
                   "Only kernels with bitwise reproducible results");
  command
      .add_option("--output-dir,-o", flags->folder, "Folder for the logs, throughput.csv and throughput.json")
      ->capture_default_str();
  command.add_option("--compare", flags->compare, "An earlier throughput.json to compare with")
      ->type_name("FILE");
  command.add_flag("--compare-unlike", flags->compare_unlike,
                   "Compare even if image size, classes, data or device differ");
  command.add_option("--plot", flags->plots, "Also draw a chart: a file that ends in .svg or .png");
  on_run(command, context, [flags] { return run_throughput(*flags); });
}

}  // namespace redline::cli
