// Resuming a run: which checkpoint to take, whether it fits, and what has changed since.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "train/checkpoint.h"
#include "train/config.h"

namespace redline::train {

// The newest checkpoint of a folder that is whole. A damaged one is named in a warning and set aside as
// step-N.damaged; `latest` then names the one that is given. Empty when there are none at all; throws
// DataError when all are damaged.
std::optional<Checkpoint> newest_checkpoint(const std::filesystem::path& folder);

// What the classes of the run in `folder` are called, by label, as its newest readable checkpoint has it;
// none where it says nothing.
std::vector<std::string> saved_class_names(const std::filesystem::path& folder);

// The configuration with the type that the run in `folder` was begun in, where neither --dtype nor --amp says
// which: a default that has changed since must not change a run. As it is for an empty folder, or one whose
// configuration cannot be read.
Config keep_dtype(Config config, const std::filesystem::path& folder);

// Throws UsageError when the checkpoint is of another model or other classes, by number or by name, naming
// both. Gives a line for every option that is not what it was.
std::vector<std::string> differences(const Subject& saved, const Subject& now, const Config& config);

// Where a run with this subject continues. When the number of images per step has changed, the epoch
// continues at the next image that begins a step, and a schedule by epochs at the same fraction of them.
Progress position(const CheckpointState& saved, const Subject& now, const Config& config);

}  // namespace redline::train
