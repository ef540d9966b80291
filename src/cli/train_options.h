// The options of a training run on the command line, for every command that trains.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <CLI/App.hpp>

#include "train/config.h"
#include "train/session.h"

namespace redline::cli {

class TrainOptions {
 public:
  // Adds -c, all flags of the configuration and the positional data. This object must outlive parsing.
  void add(CLI::App& command);

  // The configuration file or recipe if one was given, else `defaults` if not empty, overridden by the given
  // flags. Throws UsageError or IoError for a bad file; the values are not validated.
  train::Config config(const std::filesystem::path& defaults = {}) const;

 private:
  bool given(const std::string& path) const;  // by a flag; `path` is as "optimizer.name"

  std::string file_, recipe_;
  train::Config flags_;  // values of the flags; only those given count
  std::vector<std::pair<const train::Field*, CLI::Option*>> options_;
};

// Standard output, live if it is a terminal that understands control codes; runs end with their report.
train::Console console();

}  // namespace redline::cli
