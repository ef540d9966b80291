// What the commands of `redline data` share.
#pragma once

#include <vector>

#include "cli/command.h"
#include "data/images/decode.h"
#include "data/sources/record_source.h"

namespace redline::cli {

void add_data_show(CLI::App& group, Context& context);
void add_data_convert(CLI::App& group, Context& context);
void add_data_prepare(CLI::App& group, Context& context);

// 0 means one per core. Throws UsageError for fewer.
int thread_count(int asked);

// Limits on image size, with the same names as in `redline train`. The second throws UsageError for
// impossible ones.
void add_limits(CLI::App& command, data::SourceOptions& source, data::DecodeLimits& decode);
void check_limits(const data::SourceOptions& source, const data::DecodeLimits& decode);

// "not used  test/, 3 archives (x.zip, …)", after this prefix; nothing for an empty list.
void print_unused(const char* prefix, const std::vector<data::LeftOut>& unused);

}  // namespace redline::cli
