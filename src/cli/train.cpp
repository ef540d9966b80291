#include <cstdio>
#include <memory>

#include <fmt/format.h>

#include "base/log.h"
#include "cli/command.h"
#include "cli/train_options.h"
#include "train/config_file.h"
#include "train/session.h"

namespace redline::cli {
namespace {

struct Options {
  TrainOptions train;
  bool dry_run = false, print_config = false;
};

constexpr int kSignalExit = 128;

int run_train(const Options& options, const Context& context) {
  train::Config config = options.train.config();
  if (config.run.quiet) set_up_logging(LogLevel::quiet);
  if (options.print_config) {
    fmt::print("{}", train::to_toml(config));
    return 0;
  }
  if (options.dry_run) {
    if (config.data.path.empty()) config.data.path = "synthetic";
    train::print_plan(config, stdout);
    return 0;
  }
  const train::Outcome outcome = train::run_training(config, context.arguments, console());
  return outcome.signal == 0 ? 0 : kSignalExit + outcome.signal;
}

}  // namespace

void add_train(CLI::App& app, Context& context) {
  CLI::App& command =
      add_command(app, "train", "Train a ResNet on a folder of images or on synthetic data",
                  {"redline train flowers --model resnet18 --image-size 64 -b 64 -e 20 --lr 0.05",
                   "redline train synthetic --steps 20 --amp",
                   "redline train -c runs/first/config.toml --name second --lr 0.05",
                   "redline train flowers -b 256 --dry-run"});
  const auto options = std::make_shared<Options>();
  options->train.add(command);
  command.add_flag("--dry-run", options->dry_run,
                   "Print ops, FLOPs, memory and fusions of the run; train nothing");
  command.add_flag("--print-config", options->print_config,
                   "Print the configuration as a TOML file; train nothing");
  on_run(command, context, [options, &context] { return run_train(*options, context); });
}

}  // namespace redline::cli
