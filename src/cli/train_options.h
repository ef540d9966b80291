// The options of a training run on the command line, for every command that trains.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include "train/config.h"
#include "train/session.h"

namespace redline::cli {

class TrainOptions {
 public:
  // Adds -c, all flags of the configuration and the positional data. Lives until parsing is over.
  void add(CLI::App& command);

  // The configuration file or recipe, if one was given, or else `defaults`, if that is not empty, with the
  // given flags over it. Throws UsageError or IoError for a bad file; the values are not validated.
  train::Config config(const std::filesystem::path& defaults = {}) const;

 private:
  std::string file_, recipe_;
  train::Config flags_;  // what the flags said; only the options that were given count
  std::vector<std::pair<const train::Field*, CLI::Option*>> options_;
};

// Standard output, live when it is a terminal that understands control codes; runs end with their report.
train::Console console();

}  // namespace redline::cli
