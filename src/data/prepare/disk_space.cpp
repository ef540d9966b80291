#include "data/prepare/disk_space.h"

#include <sys/statvfs.h>

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"

namespace redline::data {
namespace fs = std::filesystem;

std::int64_t image_bytes(const RecordSource& source, std::int64_t block, std::int64_t extra) {
  // To ask for the size of each of a million files takes minutes on a network file system; a sample of these
  // gives the sum within a percent.
  constexpr std::int64_t kSample = 10'000;
  const std::int64_t count = source.count();
  const std::int64_t asked = source.sizes_known() ? count : std::min(count, kSample);
  std::int64_t sum = 0;
  for (std::int64_t k = 0; k < asked; ++k) {
    const std::int64_t bytes = source.encoded_bytes(k * count / asked);
    if (bytes < 0) return -1;
    sum += (bytes + extra + block - 1) / block * block;
  }
  return asked == count ? sum
                        : static_cast<std::int64_t>(static_cast<double>(sum) * static_cast<double>(count) /
                                                    static_cast<double>(asked));
}

DiskSpace disk_space(const fs::path& path) {
  std::error_code error;
  fs::path at = fs::absolute(path, error).lexically_normal();
  while (!fs::exists(at, error) && at.has_relative_path()) at = at.parent_path();
  struct statvfs status {};
  if (::statvfs(at.c_str(), &status) != 0) return {std::numeric_limits<std::int64_t>::max(), 1};
  return {static_cast<std::int64_t>(status.f_bavail) * static_cast<std::int64_t>(status.f_frsize),
          static_cast<std::int64_t>(status.f_frsize)};
}

void announce_disk(const fs::path& target, std::int64_t bytes) {
  if (bytes < 0) return;
  const DiskSpace space = disk_space(target);
  const std::string needed = format_bytes(static_cast<std::uint64_t>(bytes));
  const std::string free = format_bytes(static_cast<std::uint64_t>(space.free));
  std::error_code error;
  const bool fresh = !fs::exists(target, error) || fs::is_empty(target, error);
  if (fresh && bytes > space.free)
    throw IoError("{} needs {}, but its disk has {} free; free some space or choose another folder",
                  target.string(), needed, free);
  log_info("needs {} of disk space in {}{}; {} is free", needed, target.string(),
           fresh ? "" : ", including the files that are there", free);
}

}  // namespace redline::data
