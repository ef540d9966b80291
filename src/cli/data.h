// Commands of `redline data` that have a file of their own.
#pragma once

#include "cli/command.h"

namespace redline::cli {

void add_data_show(CLI::App& group, Context& context);

}  // namespace redline::cli
