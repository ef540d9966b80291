// What keeps this machine's GPUs from being used for training, each with its remedy. docs/gpu-troubles.md has
// the same as a table.
#pragma once

#include <filesystem>
#include <vector>

#include "cli/finding.h"
#include "cli/gpu_probe.h"

namespace redline::cli {

struct GpuFindings {
  std::vector<Finding> list;
  bool usable = false;  // as far as the driver reports, the backend can use a device
};

// From facts alone, so that every case can be tested anywhere.
GpuFindings judge_gpus(const GpuProbe& probe);

// Takes the files in which the library was found, in search order.
std::vector<Finding> judge_cudnn(const std::vector<std::filesystem::path>& found);

}  // namespace redline::cli
