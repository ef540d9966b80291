// A training run that is profiled: what is added to the run's session, and the files it leaves.
#pragma once

#include <cstdio>
#include <optional>
#include <string>

#include "profile/session.h"
#include "train/run_folder.h"
#include "train/setup.h"
#include "train/trainer.h"

namespace redline::train {

class Profiling {
 public:
  // Of rank 0 among `ranks`, before the trainer is made. Measures what the device can do at most.
  Profiling(const profile::SessionOptions& options, const Setup& setup, int ranks);

  void attach(Trainer& trainer, profile::Telemetry& telemetry);
  // After the last step: writes the files into the run's folder and prints what was found.
  void finish(const Setup& setup, const RunFolder& folder, profile::Telemetry& telemetry, std::FILE* out);

 private:
  profile::SessionOptions options_;
  int ranks_;
  profile::Ceilings ceilings_;
  profile::Session session_;
  std::optional<profile::GpuAverages> averages_;  // over the window, where the card tells them
};

}  // namespace redline::train
