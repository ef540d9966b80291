// Repeats a measurement to see how much it varies.
#pragma once

#include <string>
#include <vector>

#include "train/config.h"

namespace redline::cli {

struct RepeatOptions {
  int count = 1;
  bool cool_down = false;  // wait between runs until the device is within 1 °C of where the first one started
};

// Trains `count` times as configured, with telemetry, into runs named NAME-1, NAME-2, …; returns the exit
// code of the first that did not finish, or 0. Warns if a device does not cool down within a quarter of an
// hour.
int train_repeatedly(train::Config config, const std::vector<std::string>& arguments,
                     const RepeatOptions& repeat);

}  // namespace redline::cli
