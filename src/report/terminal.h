// A report as text for the terminal.
#pragma once

#include <string>
#include <vector>

#include "report/run.h"

namespace redline::report {

// A few lines per run; with several runs, the settings that differ come first and the changes last. Control
// characters in names are replaced. `judge_unlike` as in compare().
std::string terminal_text(const std::vector<const Run*>& runs, bool judge_unlike = false);

// Makes a name safe to print: control characters are replaced, and it is cut at 500 bytes.
std::string printable(const std::string& text);

// Values as a row of `width` blocks of eight heights; values that are not finite are left out.
std::string sparkline(const std::vector<double>& values, std::size_t width);

}  // namespace redline::report
