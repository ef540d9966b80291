// How much disk space a conversion will need, announced before it begins.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>

#include "data/sources/record_source.h"

namespace redline::data {

// Bytes that the samples' images take, each rounded up to whole blocks of `block` bytes and with `extra`
// beside it, estimated if there are many files of their own; -1 where sizes are not known before reading.
std::int64_t image_bytes(const RecordSource& source, std::int64_t block, std::int64_t extra);

struct DiskSpace {
  std::int64_t free = 0;   // bytes that this user may write
  std::int64_t block = 1;  // files take whole blocks
};

// Of the file system where path is or will be.
DiskSpace disk_space(const std::filesystem::path& path);

// Logs how much will be written to target and how much is free there. Throws IoError if it cannot fit, unless
// target already exists: then it may contain most of the data.
void announce_disk(const std::filesystem::path& target, std::int64_t bytes);

}  // namespace redline::data
