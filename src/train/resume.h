// Going on with a run that was broken off: which checkpoint, whether it fits, and what is different now.
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

// Throws UsageError when the checkpoint is of another model or other classes, naming both. Gives a line for
// every option that is not what it was.
std::vector<std::string> differences(const Subject& saved, const Subject& now, const Config& config);

// Where a run with this subject goes on. With other images per step, the epoch goes on at the next image that
// is the first of a step, and a learning rate that follows epochs finds its place in them.
Progress position(const CheckpointState& saved, const Subject& now, const Config& config);

}  // namespace redline::train
