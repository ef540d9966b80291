// Commands of `redline data` in separate files.
#pragma once

#include "cli/command.h"

namespace redline::cli {

void add_data_show(CLI::App& group, Context& context);

}  // namespace redline::cli
