// The report that every training run ends with.
#pragma once

#include <string>

namespace redline::cli {

// Writes report.html into the run's folder and prints where it is. What goes wrong is a warning: the run is
// not lost over its report. Nothing for an empty name.
void write_run_report(const std::string& folder);

}  // namespace redline::cli
