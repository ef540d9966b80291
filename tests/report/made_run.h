// Runs made up for tests, in memory.
#pragma once

#include <string>
#include <vector>

#include "report/run.h"

namespace redline::report {

// Steps given by how long the device took, and how long it stood still before.
inline report::Run made_run(const std::string& name, const std::vector<double>& seconds,
                            const std::vector<double>& gaps = {}, double images = 64) {
  report::Run run;
  run.name = name;
  run.info.model = "resnet18";
  double elapsed = 0;
  for (std::size_t i = 0; i < seconds.size(); ++i) {
    for (const StepColumn& column : step_columns()) (run.steps.*column.values).push_back(0);
    const double gap = i < gaps.size() ? gaps[i] : 0;
    elapsed += seconds[i] + gap;
    run.steps.step.back() = static_cast<double>(i + 1);
    run.steps.seconds.back() = seconds[i];
    run.steps.gap_seconds.back() = run.steps.data_seconds.back() = gap;
    run.steps.samples.back() = images;
    run.steps.elapsed.back() = elapsed;
  }
  return run;
}

}  // namespace redline::report
