// Classes by name: those of a data set brought to the labels that a trained network has for them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/record_source.h"

namespace redline::data {

// The names of a data set's classes that are worth keeping with a network: as UTF-8, by label. None where
// they are only numbers, which a source makes up where nothing names its classes, or where two would be the
// same.
std::vector<std::string> lasting_names(const std::vector<std::string>& classes);

// For each class of the data at `path`, the label of the same name among `names`. Warns of names that the
// data has no class for. By number where the data's classes have no names. Throws UsageError listing the
// classes that are not among the names.
std::vector<std::int32_t> match_classes(const std::vector<std::string>& names,
                                        const std::vector<std::string>& classes, const std::string& path);

// The same samples with other labels and classes: labels[l] in place of l.
std::shared_ptr<const RecordSource> relabelled(std::shared_ptr<const RecordSource> source,
                                               std::vector<std::int32_t> labels,
                                               std::vector<std::string> classes);

}  // namespace redline::data
