// Images given by path, as files or folders, as a source without classes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/sources/record_source.h"

namespace redline::data {

// The path that stands for an image on standard input.
inline constexpr const char* kPiped = "-";

// Files in the order of `paths`, whatever their extension; a folder stands for all images in it and its
// subfolders, by name, with links followed. `piped` is the image that kPiped stands for. A file that cannot
// be read fails when it is read. Every label is 0. Throws UsageError when there are no images at all, IoError
// when a folder cannot be listed, DataError for links that form a cycle.
std::shared_ptr<const RecordSource> list_images(const std::vector<std::string>& paths,
                                                std::vector<std::uint8_t> piped = {});

}  // namespace redline::data
