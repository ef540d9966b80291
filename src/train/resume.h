// Resuming a run: which checkpoint to take, whether it fits, and what has changed since.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "train/checkpoint.h"
#include "train/config.h"

namespace redline::train {

// The newest complete checkpoint of a folder. A damaged one is reported in a warning and set aside as
// step-N.damaged; `latest` then points to the returned one. Empty if there are none; throws DataError if all
// are damaged.
std::optional<Checkpoint> newest_checkpoint(const std::filesystem::path& folder);

// Throws UsageError if `config` starts from other weights than the run did, whose configuration is `before`.
void check_same_init(const Config& config, const Config& before);

// The class names of the run in `folder`, by label, from its newest readable checkpoint; none if it has none.
std::vector<std::string> saved_class_names(const std::filesystem::path& folder);

// The configuration with the type that the run in `folder` started with, unless --dtype or --amp is given: a
// default that has changed since must not change a run. Unchanged for an empty folder, or one whose
// configuration cannot be read.
Config keep_dtype(Config config, const std::filesystem::path& folder);

// Throws UsageError if the checkpoint is of another model or has other classes, by number or by name, naming
// both. Returns a line for every option that has changed.
std::vector<std::string> differences(const Subject& saved, const Subject& now, const Config& config);

// Where a run with this subject continues. When the number of images per step has changed, the epoch
// continues at the next image that begins a step, and a schedule by epochs at the same fraction of them.
Progress position(const CheckpointState& saved, const Subject& now, const Config& config);

}  // namespace redline::train
