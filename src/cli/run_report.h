// The report that every training run ends with.
#pragma once

#include <string>

namespace redline::cli {

// Writes report.html into the run's folder and prints its path. A failure is only a warning: the run itself
// is fine. Does nothing for an empty name. Where a run was interrupted whose page would take long, it prints
// the command for the page instead.
void write_run_report(const std::string& folder, bool interrupted);

}  // namespace redline::cli
