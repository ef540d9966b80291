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
  static constexpr std::size_t kLongest = std::size_t{1} << 20;  // longer lines are cut

  explicit LineFollower(std::filesystem::path path) : path_(std::move(path)) {}

  // Calls `line` with each complete line added since the last call, without its line end. If the file was
  // replaced (it is shorter, or differs before the place read so far), calls `restart` and reads from the
  // start. Returns whether anything was read. A missing file has no lines. Throws IoError if reading fails.
  bool read(const std::function<void()>& restart, const std::function<void(std::string_view)>& line);

  std::uint64_t unfinished() const { return unfinished_; }  // bytes of an incomplete last line

 private:
  std::filesystem::path path_;
  std::uint64_t offset_ = 0;  // where the next line starts
  std::string before_;        // the last bytes before offset_
  std::uint64_t unfinished_ = 0;
};

}  // namespace redline::report
