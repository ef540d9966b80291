#include "cli/repeat.h"

#include <unistd.h>

#include <memory>

#include <fmt/format.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/live_line.h"
#include "base/log.h"
#include "base/signals.h"
#include "cli/command.h"
#include "cli/train_options.h"
#include "profile/cool_down.h"
#include "train/run_folder.h"
#include "train/session.h"
#include "train/setup.h"

namespace redline::cli {
namespace {

constexpr double kNearEnough = 1;  // °C

std::unique_ptr<profile::Thermometer> thermometer_of(const train::Config& config) {
  return std::make_unique<profile::Thermometer>(train::open_device(config)->pci_address());
}

// Returns the signal that ended the wait, or 0.
int wait_between_runs(profile::Thermometer& thermometer, double start) {
  const StopSignals signals;
  const train::Console shown = console();
  LiveLine line(shown.out);
  const profile::CoolDown wanted{start + kNearEnough};
  const Stopwatch watch;
  double last = 0;
  const auto cooled = profile::wait_until_cool(
      [&] { return thermometer.read(); }, wanted, signals.flag(),
      [&](double now) {
        last = now;
        if (shown.live)
          line.draw(fmt::format("cooling down: {:.0f} °C, waiting for {:.0f} °C", now, wanted.target));
      });
  line.clear();
  if (cooled == profile::Cooled::stopped) return signals.signal();
  if (cooled == profile::Cooled::too_slow) {
    log_warning("the device is still at {:.0f} °C after {}, and started at {:.0f} °C: continuing", last,
                format_duration(watch.seconds()), start);
  }
  return 0;
}

}  // namespace

int train_repeatedly(train::Config config, const std::vector<std::string>& arguments,
                     const RepeatOptions& repeat) {
  if (config.run.telemetry.empty()) config.run.telemetry = "50ms";
  // Another process may start in the same second, on another GPU of this machine.
  const std::string name =
      !config.run.name.empty()
          ? config.run.name
          : fmt::format("{}-{}",
                        train::default_run_name(config.model.name, config.data.path, utc_timestamp()),
                        getpid());
  train::validate(config);
  std::unique_ptr<profile::Thermometer> thermometer;
  double start = 0;
  if (repeat.cool_down) {
    thermometer = thermometer_of(config);
    start = thermometer->read().value_or(0);
  }
  for (int i = 1; i <= repeat.count; ++i) {
    if (thermometer && i > 1) {
      if (const int signal = wait_between_runs(*thermometer, start); signal != 0) return kSignalExit + signal;
    }
    config.run.name = fmt::format("{}-{}", name, i);
    const train::Outcome outcome = train::run_training(config, arguments, console());
    if (const int code = exit_code(outcome); code != 0) return code;
  }
  return 0;
}

}  // namespace redline::cli
