// The facts about a run: those in its config.toml, and the information that its sinks start with.
#pragma once

#include <string>
#include <vector>

#include "metrics/recorder.h"
#include "train/run_folder.h"
#include "train/setup.h"
#include "train/trainer.h"

namespace redline::train {

// Of a run on these batches; `val` may be null. Name, folder and start are left to the caller.
metrics::RunInfo run_info(const Setup& setup, const Trainer& trainer, const data::BatchSource& train,
                          const data::BatchSource* val);

// Writes config.toml, and the classes' names and words where the data has them, into the run's folder. Throws
// IoError; a resumed run only warns, and the files stay as they were.
void save_config(const Setup& setup, const RunFolder& folder, const std::vector<std::string>& arguments,
                 const std::string& started, bool resuming);

}  // namespace redline::train
