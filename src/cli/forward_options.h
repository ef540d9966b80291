// The flags of commands that run a trained network on images.
#pragma once

#include <CLI/App.hpp>

#include "train/forward.h"

namespace redline::cli {

void add_forward_options(CLI::App& command, train::ForwardOptions& forward);

}  // namespace redline::cli
