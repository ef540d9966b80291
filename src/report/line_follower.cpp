#include "report/line_follower.h"

#include <algorithm>
#include <span>
#include <vector>

#include "base/error.h"
#include "base/random_file.h"

namespace redline::report {
namespace {

constexpr std::size_t kChunk = std::size_t{1} << 20;
constexpr std::size_t kRemembered = 64;

std::string bytes_at(const RandomFile& file, std::uint64_t offset, std::size_t count) {
  std::string bytes(count, '\0');
  file.read(offset, {reinterpret_cast<std::uint8_t*>(bytes.data()), count});
  return bytes;
}

bool is_file(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored);
}

}  // namespace

bool LineFollower::read(const std::function<void()>& restart,
                        const std::function<void(std::string_view)>& line) {
  if (!is_file(path_)) {
    if (offset_ == 0) return false;
    restart();
    offset_ = 0;
    before_.clear();
    return true;
  }
  const RandomFile file(path_);
  bool changed = false;
  if (file.size() < offset_ || bytes_at(file, offset_ - before_.size(), before_.size()) != before_) {
    restart();
    offset_ = 0;
    before_.clear();
    changed = true;
  }
  std::string kept;  // the start of a line that continues in the next chunk
  std::uint64_t at = offset_;
  while (at < file.size()) {
    const std::string chunk = bytes_at(file, at, std::min<std::uint64_t>(kChunk, file.size() - at));
    std::string_view rest = chunk;
    for (std::size_t end; (end = rest.find('\n')) != std::string_view::npos; rest.remove_prefix(end + 1)) {
      const std::string_view found = rest.substr(0, end);
      if (kept.empty()) {
        line(found);
      } else {
        kept.append(found.substr(0, kLongest - std::min(kLongest, kept.size())));
        line(kept);
        kept.clear();
      }
      offset_ = at + static_cast<std::uint64_t>(rest.data() - chunk.data()) + end + 1;
      changed = true;
    }
    kept.append(rest.substr(0, kLongest - std::min(kLongest, kept.size())));
    at += chunk.size();
  }
  unfinished_ = file.size() - offset_;
  const auto remembered = static_cast<std::size_t>(std::min<std::uint64_t>(kRemembered, offset_));
  before_ = bytes_at(file, offset_ - remembered, remembered);
  return changed;
}

}  // namespace redline::report
