// Images that somebody names one by one or by their folder, as a source without classes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/record_source.h"

namespace redline::data {

// Files in the order of `paths`, whatever their names end in; in place of a folder all images in it and the
// folders below it, by name. Links to folders are not followed. Whether a file can be read shows when it is.
// Every label is 0. Throws UsageError when there are no images at all, IoError when a folder cannot be
// listed.
std::shared_ptr<const RecordSource> list_images(const std::vector<std::string>& paths);

}  // namespace redline::data
