// CSV tables of all runs for other programs; the first column names the run.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "report/run.h"

namespace redline::report {

// Creates the folder and writes summary.csv, steps.csv, evaluations.csv, checkpoints.csv, notices.csv,
// telemetry.csv, energy.csv (one row per epoch) and changes.csv (the result of compare()). Empty tables are
// left out. Files are written atomically. Returns their names. Throws IoError.
std::vector<std::string> write_csv(const std::vector<const Run*>& runs, const std::filesystem::path& folder,
                                   bool judge_unlike = false);

}  // namespace redline::report
