// Everything in bulk, for other programs: tables of all runs together, a first column naming the run.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "report/run.h"

namespace redline::report {

// Writes summary.csv, steps.csv, evaluations.csv, checkpoints.csv, notices.csv, telemetry.csv, energy.csv (a
// row an epoch) and changes.csv (what compare() gives) into the folder, which is made; a table of which there
// is nothing is left out. Each file is whole or not there. Gives the files' names. Throws IoError.
std::vector<std::string> write_csv(const std::vector<const Run*>& runs, const std::filesystem::path& folder,
                                   bool judge_unlike = false);

}  // namespace redline::report
