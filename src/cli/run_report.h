// The report that every training run ends with.
#pragma once

#include <string>

namespace redline::cli {

// Writes report.html into the run's folder and prints its path. A failure is only a warning: the run itself
// is fine. Does nothing for an empty name. If the run was interrupted and its page would take long, prints
// the command that makes the page instead.
void write_run_report(const std::string& folder, bool interrupted);

}  // namespace redline::cli
