// redline profile: where the time of training steps goes, and what stops them from going faster.
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "base/log.h"
#include "cli/command.h"
#include "cli/train_options.h"
#include "comm/world.h"
#include "profile/session.h"
#include "train/session.h"

namespace redline::cli {
namespace {

constexpr std::int64_t kDefaultSteps = 10;

struct ProfileOptions {
  TrainOptions train;
  profile::SessionOptions session;
  std::vector<std::int64_t> batch_sizes;
};

// A run that ends with the last profiled step.
int profile_once(train::Config config, const ProfileOptions& options, const Context& context,
                 const comm::World& world) {
  profile::SessionOptions session = options.session;
  if (config.schedule.epochs)
    throw UsageError("--epochs: a profile is --steps long (default {}), from --start on", kDefaultSteps);
  session.steps = config.schedule.steps.value_or(kDefaultSteps);
  if (session.start < 1 || session.steps < 1) throw UsageError("--start and --steps must be at least 1");
  config.schedule.steps = session.start + session.steps - (session.counters ? 0 : 1);
  config.run.checkpoint_every = "off";
  if (config.run.telemetry.empty()) config.run.telemetry = "50ms";
  return exit_code(train::run_training(config, context.arguments, console(), {}, session, world));
}

int run_profile(const ProfileOptions& options, const Context& context) {
  const train::Config config = options.train.config();
  const comm::World world = comm::find_world();
  if (world.rank != 0) set_up_logging(LogLevel::quiet);  // rank 0 speaks for all
  if (options.batch_sizes.empty()) return profile_once(config, options, context, world);
  if (world.size > 1) throw UsageError("--batch-sizes: with several ranks, launch one run per -b");
  for (const std::int64_t batch : options.batch_sizes) {
    train::Config one = config;
    one.optimizer.batch_size = batch;
    if (!one.run.name.empty()) one.run.name += fmt::format("-b{}", batch);
    fmt::print("batch {}\n", batch);
    if (const int code = profile_once(one, options, context, world); code != 0) return code;
    fmt::print("\n");
  }
  return 0;
}

}  // namespace

void add_profile(CLI::App& app, Context& context) {
  CLI::App& command =
      add_command(app, "profile", "Show where the time of training steps goes; takes the options of train",
                  {"redline profile synthetic -b 64 --start 11 --steps 10",
                   "redline profile flowers --amp --name where-it-goes",
                   "redline profile synthetic --batch-sizes 32,64,128"});
  const auto options = std::make_shared<ProfileOptions>();
  options->train.add(command);
  command
      .add_option("--start", options->session.start,
                  "First traced step, of --steps (default 10); earlier steps warm up and, from step 16 on, "
                  "measure the "
                  "cost of tracing")
      ->capture_default_str();
  command
      .add_option("--batch-sizes", options->batch_sizes,
                  "Profile each of these batch sizes in a separate run; separated by commas")
      ->delimiter(',')
      ->allow_extra_args(false);
  command.add_flag("--counters", options->session.counters,
                   "Also measure core utilisation, in one more step that repeats every kernel (GPU)");
  command
      .add_option("--max-records", options->session.most_records,
                  "Stop at the end of the step that exceeds this many records")
      ->capture_default_str();
  on_run(command, context, [options, &context] { return run_profile(*options, context); });
}

}  // namespace redline::cli
