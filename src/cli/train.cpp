#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

#include <fmt/format.h>

#include "base/error.h"
#include "base/log.h"
#include "cli/command.h"
#include "cli/repeat.h"
#include "cli/train_options.h"
#include "comm/world.h"
#include "train/config_file.h"
#include "train/resume.h"
#include "train/session.h"

namespace redline::cli {
namespace {

namespace fs = std::filesystem;

struct TrainArguments {
  TrainOptions train;
  CLI::Option* resume_option = nullptr;
  std::string resume;  // a run folder, or empty
  bool dry_run = false, print_config = false;
  RepeatOptions repeat;
};

// The configuration of the run to resume, overridden by the given flags.
train::Config config_of(const std::string& run, const TrainOptions& options) {
  const fs::path folder = fs::path(run + "/").lexically_normal().parent_path();
  if (!fs::is_regular_file(folder / "config.toml")) {
    throw UsageError(
        "--resume {0}: not a run folder, as it has no config.toml; if {0} is the data, put it before "
        "--resume",
        run);
  }
  train::Config config = options.config(folder / "config.toml");
  train::check_same_init(config, train::read_config(folder / "config.toml"));
  if (config.data.path.empty())
    throw DataError(
        "{} does not name the run's data, so it is damaged: restore it, or give the data and all other "
        "options "
        "of the run",
        (folder / "config.toml").string());
  config.run.output_dir = folder.has_parent_path() ? folder.parent_path().string() : ".";
  config.run.name = folder.filename().string();
  return config;
}

int run_train(const TrainArguments& options, const Context& context) {
  train::Config config =
      options.resume.empty() ? options.train.config() : config_of(options.resume, options.train);
  config.run.quiet = config.run.quiet || context.quiet;
  if (config.run.quiet) set_up_logging(LogLevel::quiet);
  if (options.print_config) {
    train::Config whole = config;  // a file may leave out the data
    if (whole.data.path.empty()) whole.data.path = "synthetic";
    train::validate(whole);
    fmt::print("{}", train::to_toml(config));
    return 0;
  }
  if (options.dry_run) {
    if (config.data.path.empty()) config.data.path = "synthetic";
    train::print_plan(config, stdout);
    return 0;
  }
  const train::Resume resume{options.resume_option->count() > 0, options.resume};
  if (options.repeat.count < 1) throw UsageError("--repeat {} must be at least 1", options.repeat.count);
  if (options.repeat.cool_down && options.repeat.count == 1)
    throw UsageError("--cool-down waits between runs: it needs --repeat");
  const comm::World world = comm::find_world();
  if (options.repeat.count > 1) {
    if (world.size > 1) throw UsageError("--repeat measures one device: launch it on each separately");
    if (resume.wanted) throw UsageError("--repeat starts new runs: leave out --resume");
    return train_repeatedly(config, context.arguments, options.repeat);
  }
  if (world.rank != 0) set_up_logging(LogLevel::quiet);  // rank 0 speaks for all
  return exit_code(train::run_training(config, context.arguments, console(), resume, {}, world));
}

}  // namespace

void add_train(CLI::App& app, Context& context) {
  CLI::App& command =
      add_command(app, "train", "Train a ResNet on a folder of images or on synthetic data",
                  {"redline train flowers --model resnet18 --image-size 64 -b 64 -e 20 --lr 0.05",
                   "redline train synthetic --steps 20 --amp",
                   "redline train -c runs/first/config.toml --name second --lr 0.05",
                   "redline train flowers --name first --checkpoint-every 5m --resume",
                   "redline train --resume runs/first", "redline train flowers -b 256 --dry-run"});
  const auto options = std::make_shared<TrainArguments>();
  options->train.add(command);
  options->resume_option =
      command
          .add_option(
              "--resume", options->resume,
              "Resume a run from its newest checkpoint, with its options; without a folder, the run that "
              "--output-dir and --name give, or a new one")
          ->expected(0, 1)
          ->type_name("[RUN]");
  command
      .add_option("--repeat", options->repeat.count,
                  "Train this many times with telemetry, into NAME-1, NAME-2, … (see `redline variability`)")
      ->type_name("N");
  command.add_flag(
      "--cool-down", options->repeat.cool_down,
      "With --repeat, wait between runs until the device is within 1 °C of its starting temperature");
  command.add_flag("--dry-run", options->dry_run, "Print ops, FLOPs, memory and fusions without training");
  command.add_flag("--print-config", options->print_config,
                   "Print the configuration as TOML without training");
  on_run(command, context, [options, &context] { return run_train(*options, context); });
}

}  // namespace redline::cli
