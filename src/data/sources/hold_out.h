// Validation images taken from the training images, for data sets without validation images.
#pragma once

#include <cstdint>
#include <filesystem>

#include "data/sources/record_source.h"

namespace redline::data {

// Opens the data set at path and holds out `share` of the images of every class, rounded, chosen by the seed
// alone; of a class with several images at least one stays for training. path may also be a folder of class
// folders. Throws UsageError when the data set has validation images, or too few images for any to be held
// out, and otherwise as open_source does.
OpenSplits open_with_held_out(const std::filesystem::path& path, double share, std::uint64_t seed,
                              const SourceOptions& options = {});

// The same of an open source.
OpenSplits hold_out(std::unique_ptr<RecordSource> all, double share, std::uint64_t seed);

}  // namespace redline::data
