// Reading tables of hardware counters, Redline's own and Nsight Compute's.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "profile/counters.h"

namespace redline::report {

// Takes the long form of `ncu --csv` (a row a counter) and the wide one of its raw page (a column a counter,
// a row of units first), with what ncu prints before the table. Numbers may have separators of thousands, and
// bytes a prefix in their unit. Throws DataError, naming the file and line, for a table that is neither or
// holds a counter that is not a number; IoError when it cannot be read.
std::vector<profile::CountedKernel> read_counters(const std::filesystem::path& path);
std::vector<profile::CountedKernel> parse_counters(std::string_view text, const std::string& name);

}  // namespace redline::report
