// Matches the classes of a data set by name to the labels of a trained network.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/sources/record_source.h"

namespace redline::data {

// The class names of a data set that are worth storing with a network: as UTF-8, by label. None if they are
// only numbers, which a source uses for unnamed classes, or if two would be the same.
std::vector<std::string> lasting_names(const std::vector<std::string>& classes);

// For each class of the data at `path`, the label of the same name in `names`. Warns about names without a
// class in the data. Matches by number if the data's classes have no names. Throws UsageError listing the
// classes that are not in `names`.
std::vector<std::int32_t> match_classes(const std::vector<std::string>& names,
                                        const std::vector<std::string>& classes, const std::string& path);

// The same samples with other labels and classes: labels[l] instead of l.
std::shared_ptr<const RecordSource> relabelled(std::shared_ptr<const RecordSource> source,
                                               std::vector<std::int32_t> labels,
                                               std::vector<std::string> classes);

}  // namespace redline::data
