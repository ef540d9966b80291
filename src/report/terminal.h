// A report for people who look at it over ssh.
#pragma once

#include <string>
#include <vector>

#include "report/run.h"

namespace redline::report {

// For several runs first what was set differently; then a few lines a run; then what changed. Control
// characters in names are replaced. `judge_unlike`: as compare() has it.
std::string terminal_text(const std::vector<const Run*>& runs, bool judge_unlike = false);

// A name that cannot move the cursor or colour the terminal: control characters are replaced, and it is cut
// at 500 bytes.
std::string printable(const std::string& text);

// Values as a row of blocks of eight heights, `width` of them; values that are not finite are left out.
std::string sparkline(const std::vector<double>& values, std::size_t width);

}  // namespace redline::report
