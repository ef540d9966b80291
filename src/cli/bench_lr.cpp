// redline bench lr: a learning rate to begin with.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/log.h"
#include "base/quantity.h"
#include "base/signals.h"
#include "bench/chart.h"
#include "bench/lr_finder.h"
#include "cli/bench.h"
#include "cli/command.h"
#include "cli/progress_line.h"
#include "cli/train_options.h"
#include "comm/world.h"
#include "data/progress.h"

namespace redline::cli {
namespace {

struct LrFlags {
  TrainOptions train;
  bench::LrOptions options;
  std::string json, csv;
  std::vector<std::string> plots;
};

// Every few steps one bar, of the smoothed loss.
void print_bars(bench::Chart chart) {
  constexpr std::size_t kRows = 24;
  const bench::Series smoothed = std::move(chart.series.back());
  const std::size_t every = (smoothed.points.size() + kRows - 1) / kRows;
  chart.series = {{smoothed.name, {}}};
  for (std::size_t i = every / 2; i < smoothed.points.size(); i += every)
    chart.series[0].points.push_back(smoothed.points[i]);
  fmt::print("{}\n", bench::text_chart(chart, 72));
}

void print_suggestion(const bench::LrSweep& sweep, const bench::LrSuggestion& suggestion) {
  if (!suggestion.rate) {
    fmt::print("no suggestion: {}\n", suggestion.why_not);
    return;
  }
  fmt::print("suggested: --lr {:.2g}\n", *suggestion.rate / sweep.scale);
  fmt::print("the loss falls fastest at the rate {:.2g}, and is lowest at {:.2g}{}\n", *suggestion.rate,
             *suggestion.lowest,
             sweep.diverged ? fmt::format("; it diverges at {:.2g}", sweep.points.back().rate) : "");
}

int run_lr(LrFlags& flags) {
  bench::LrOptions& options = flags.options;
  options.config = flags.train.config();
  if (comm::find_world().size > 1)
    throw UsageError("bench lr runs in one process: start it without a launcher");
  if (options.config.schedule.epochs)
    throw UsageError("--epochs: the length of a sweep is --steps (default {})", options.steps);
  options.steps = options.config.schedule.steps.value_or(options.steps);
  bench::validate(options);
  for (const std::string& plot : flags.plots) bench::check_chart_name(plot);
  ResultFile json(flags.json), csv(flags.csv);
  const StopSignals signals;
  options.stop = &signals.flag();
  ProgressLine line("sweeping", "steps");
  bench::LrSweep sweep;
  try {
    sweep = bench::sweep_rates(options, [&](std::int64_t step) {
      line.update(step, options.steps);
      return !signals.requested();
    });
  } catch (const data::Stopped&) {
    sweep.stopped = true;
  }
  line.clear();
  if (sweep.stopped) {
    print_stderr("redline: stopped; nothing was written\n");
    return kSignalExit + signals.signal();
  }
  const bench::LrSuggestion suggestion = bench::suggest(sweep);
  fmt::print("{}, {}, {} a step; {}\n\n", sweep.model, sweep.dtype, counted(sweep.batch, "image"),
             sweep.device);
  const bench::Chart chart = bench::lr_chart(sweep, suggestion);
  print_bars(chart);
  print_suggestion(sweep, suggestion);
  nlohmann::ordered_json record = bench_record("bench lr");
  record.update({{"data", options.config.data.path},
                 {"optimizer", options.config.optimizer.name},
                 {"from", options.from},
                 {"to", options.to},
                 {"steps", options.steps}});
  record.update(bench::lr_json(sweep, suggestion));
  json.write(record);
  csv.write(bench::lr_csv(sweep));
  for (const std::string& plot : flags.plots) bench::write_chart(chart, plot);
  return 0;
}

}  // namespace

void add_bench_lr(CLI::App& group, Context& context) {
  CLI::App& command = add_command(
      group, "lr", "Find a learning rate: a sweep until the loss diverges; takes the options of train",
      {"redline bench lr flowers --model resnet18 --image-size 64 -b 64",
       "redline bench lr flowers --opt adamw --init weights.pth --freeze stem,layer1 --plot lr.svg",
       "redline bench lr imagenet --from 1e-4 --to 100 --steps 400 --csv lr.csv"});
  const auto flags = std::make_shared<LrFlags>();
  flags->train.add(command);
  command.add_option("--from", flags->options.from, "Learning rate of the first step")->capture_default_str();
  command.add_option("--to", flags->options.to, "Learning rate of the last of --steps (default 200)")
      ->capture_default_str();
  command.add_option("--json", flags->json, "Also write the result, with every step, to this file")
      ->type_name("FILE");
  command.add_option("--csv", flags->csv, "Also write the steps as a table to this file")->type_name("FILE");
  command.add_option("--plot", flags->plots, "Also draw a chart: a file that ends in .svg or .png");
  on_run(command, context, [flags] { return run_lr(*flags); });
}

}  // namespace redline::cli
