#include "train/run_folder.h"

#include <algorithm>
#include <cctype>
#include <system_error>

#include "base/error.h"

namespace redline::train {
namespace fs = std::filesystem;
namespace {

[[noreturn]] void cannot_make(const fs::path& path, const std::error_code& reason) {
  throw IoError("cannot make the run folder {}: {}; choose another --output-dir", path.string(),
                reason.message());
}

// The topmost part of path that is not there yet; empty when all is there.
fs::path first_missing(const fs::path& path) {
  fs::path missing;
  std::error_code ignored;
  for (fs::path at = fs::absolute(path).lexically_normal(); !at.empty() && !fs::exists(at, ignored);
       at = at.parent_path()) {
    if (!at.filename().empty()) missing = at;
    if (at == at.parent_path()) break;
  }
  return missing;
}

}  // namespace

std::string default_run_name(const std::string& model, const std::string& data_path,
                             const std::string& timestamp) {
  fs::path path = fs::path(data_path).lexically_normal();
  if (path.filename().empty()) path = path.parent_path();
  std::string data = path.filename().string();
  std::ranges::replace_if(
      data, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '.' && c != '_'; },
      '-');
  if (data.empty() || data == "." || data == "..") data = "data";
  // 2025-01-31T08:15:00Z -> 20250131-081500
  std::string time;
  for (char c : timestamp) {
    if (std::isdigit(static_cast<unsigned char>(c)) != 0) time += c;
    if (c == 'T') time += '-';
  }
  return fmt::format("{}-{}-{}", model, data, time);
}

RunFolder::RunFolder(const fs::path& output_dir, const std::string& name, bool chosen)
    : made_parent_(first_missing(output_dir)) {
  std::error_code error;
  fs::create_directories(output_dir, error);
  if (error) cannot_make(output_dir, error);
  for (int number = 1;; ++number) {
    path_ = output_dir / (number == 1 ? name : fmt::format("{}-{}", name, number));
    if (fs::create_directory(path_, error)) return;
    if (error && error != std::errc::file_exists) {
      const std::error_code reason = error;
      if (!made_parent_.empty()) fs::remove(made_parent_, error);
      cannot_make(path_, reason);
    }
    if (chosen)
      throw UsageError("{} is there already: choose another --name or --output-dir", path_.string());
  }
}

RunFolder::~RunFolder() {
  if (keep_) return;
  std::error_code ignored;
  fs::remove_all(path_, ignored);
  // Parents only while they are empty: another run may have moved in.
  if (made_parent_.empty()) return;
  const fs::path stop = made_parent_.parent_path();
  for (fs::path at = fs::absolute(path_).lexically_normal().parent_path();
       at != stop && fs::remove(at, ignored);) {
    at = at.parent_path();
  }
}

}  // namespace redline::train
