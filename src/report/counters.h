// Reading tables of hardware counters, Redline's own and Nsight Compute's.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "profile/counters.h"

namespace redline::report {

// Reads the long form of `ncu --csv` (one row per counter) and the wide form of its raw page (one column per
// counter, units in the first row), skipping what ncu prints before the table. Numbers may have thousands
// separators, and byte units a prefix. Throws DataError with file and line if the table has neither form or a
// counter is not a number; IoError if it cannot be read.
std::vector<profile::CountedKernel> read_counters(const std::filesystem::path& path);
std::vector<profile::CountedKernel> parse_counters(std::string_view text, const std::string& name);

}  // namespace redline::report
