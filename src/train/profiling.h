// A training run that is profiled: what is added to the run's session, and the files it leaves.
#pragma once

#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>

#include "profile/session.h"
#include "train/setup.h"
#include "train/trainer.h"

namespace redline::train {

class Profiling {
 public:
  // Of one rank of a job, before its trainer is made. Measures what the device can do at most.
  Profiling(const profile::SessionOptions& options, const Setup& setup, int rank, int ranks);

  void attach(Trainer& trainer, profile::Telemetry& telemetry);
  // After the last step: writes the files into `folder` and prints what was found, unless `out` is null.
  void finish(const Setup& setup, const std::filesystem::path& folder, profile::Telemetry& telemetry,
              std::FILE* out);

 private:
  profile::SessionOptions options_;
  int rank_, ranks_;
  profile::Ceilings ceilings_;
  profile::Session session_;
  // Over the window: what was sampled, and averages where the GPU tells them.
  std::optional<profile::TelemetrySummary> sampled_;
  std::optional<profile::GpuAverages> averages_;
};

}  // namespace redline::train
