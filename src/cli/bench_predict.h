// The prediction of `redline bench comm --predict`.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/command.h"

namespace redline::cli {

struct PredictFlags;

// Adds the options that only a prediction has: they are refused without `predict`.
std::shared_ptr<PredictFlags> add_predict_options(CLI::App& command, CLI::Option* predict);

// What the measurement has too.
struct PredictOutput {
  std::string device, dtype;
  std::string json, csv;
  std::vector<std::string> plots;
};
int run_prediction(const PredictFlags& flags, const PredictOutput& output);

}  // namespace redline::cli
