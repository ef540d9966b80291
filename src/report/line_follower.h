// Reads a file of lines that another process may be writing.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

namespace redline::report {

// One thread at a time.
class LineFollower {
 public:
  static constexpr std::size_t kLongest = std::size_t{1} << 20;  // of a longer line, only so much is given

  explicit LineFollower(std::filesystem::path path) : path_(std::move(path)) {}

  // Gives each whole line since the last call, without its end; a last line that has none yet waits. When the
  // file is no longer the one that was read so far (shorter, or changed before that place), calls restart and
  // begins again. Gives whether there was anything. A file that is not there has no lines. Throws IoError
  // when reading fails.
  bool read(const std::function<void()>& restart, const std::function<void(std::string_view)>& line);

  std::uint64_t unfinished() const { return unfinished_; }  // bytes of a last line without its end

 private:
  std::filesystem::path path_;
  std::uint64_t offset_ = 0;  // of the first byte that no line was given for
  std::string before_;        // the last bytes before it
  std::uint64_t unfinished_ = 0;
};

}  // namespace redline::report
