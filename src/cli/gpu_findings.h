// What stands between this machine's GPUs and training on them, each with its cure. docs/gpu-troubles.md has
// the same as a table.
#pragma once

#include <filesystem>
#include <vector>

#include "cli/finding.h"
#include "cli/gpu_probe.h"

namespace redline::cli {

struct GpuFindings {
  std::vector<Finding> list;
  bool usable = false;  // as far as the driver tells: there is a device that the backend serves
};

// From facts alone, so that every case can be tested anywhere.
GpuFindings judge_gpus(const GpuProbe& probe);

// Of the files that a library was found in, in the order in which they are looked for.
std::vector<Finding> judge_cudnn(const std::vector<std::filesystem::path>& found);

}  // namespace redline::cli
