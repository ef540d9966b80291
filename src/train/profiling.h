// Profiling of a training run: what it adds to the run's session, and the files it writes.
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
  // For one rank of a job, before its trainer is made. Measures the device's ceilings.
  Profiling(const profile::SessionOptions& options, const Setup& setup, int rank, int ranks);

  void attach(Trainer& trainer, profile::Telemetry& telemetry);
  // After the last step: writes the files into `folder` and prints what was found, unless `out` is null.
  void finish(const Setup& setup, const data::BatchSource& batches, const std::filesystem::path& folder,
              profile::Telemetry& telemetry, std::FILE* out);

 private:
  profile::SessionOptions options_;
  int rank_, ranks_;
  profile::Ceilings ceilings_;
  profile::Session session_;
  // Over the window: samples, and averages if the GPU reports them.
  std::optional<profile::TelemetrySummary> sampled_;
  std::optional<profile::GpuAverages> averages_;
};

}  // namespace redline::train
