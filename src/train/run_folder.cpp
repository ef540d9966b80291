#include "train/run_folder.h"

#include <algorithm>
#include <cctype>
#include <system_error>
#include <vector>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/log.h"

namespace redline::train {
namespace fs = std::filesystem;
namespace {

[[noreturn]] void cannot_make(const fs::path& path, const std::error_code& reason) {
  throw IoError("cannot create the run folder {}: {}; choose {}", path.string(), reason.message(),
                reason == std::errc::filename_too_long ? "a shorter --name" : "another --output-dir");
}

// The topmost part of path that does not exist yet; empty if all of it exists.
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

std::unique_ptr<FolderLock> hold(const fs::path& path) {
  try {
    return std::make_unique<FolderLock>(path);
  } catch (const TryAgainError& busy) {
    throw TryAgainError("{}, or choose another --name or --output-dir", busy.what());
  } catch (const IoError& reason) {  // some network file systems: two runs must not share a folder there
    log_debug("{}", reason.what());
    return nullptr;
  }
}

// "resnet50-flowers-", to which a run adds its time.
std::string name_prefix(const std::string& model, const std::string& data_path) {
  fs::path path = fs::path(data_path).lexically_normal();
  if (path.filename().empty()) path = path.parent_path();
  std::string data = path.filename().string();
  std::ranges::replace_if(
      data, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '.' && c != '_'; },
      '-');
  if (data.empty() || data == "." || data == "..") data = "data";
  return fmt::format("{}-{}-", model, data);
}

}  // namespace

std::string default_run_name(const std::string& model, const std::string& data_path,
                             const std::string& timestamp) {
  // 2025-01-31T08:15:00Z -> 20250131-081500
  std::string time;
  for (char c : timestamp) {
    if (std::isdigit(static_cast<unsigned char>(c)) != 0) time += c;
    if (c == 'T') time += '-';
  }
  return name_prefix(model, data_path) + time;
}

fs::path newest_run(const fs::path& output_dir, const std::string& model, const std::string& data_path) {
  const std::string prefix = name_prefix(model, data_path);
  std::string newest;  // names sort by time
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(output_dir, ignored)) {
    const std::string name = entry.path().filename().string();
    const bool timed =
        name.starts_with(prefix) && name.find_first_not_of("0123456789-", prefix.size()) == std::string::npos;
    if (timed && name > newest && entry.is_directory(ignored)) newest = name;
  }
  return newest.empty() ? fs::path() : output_dir / newest;
}

RunFolder::RunFolder(const fs::path& output_dir, const std::string& name, bool chosen)
    : made_parent_(first_missing(output_dir)) {
  std::error_code error;
  fs::create_directories(output_dir, error);
  if (error) cannot_make(output_dir, error);
  for (int number = 1;; ++number) {
    path_ = output_dir / (number == 1 ? name : fmt::format("{}-{}", name, number));
    if (fs::create_directory(path_, error)) {
      lock_ = hold(path_);
      return;
    }
    if (error && error != std::errc::file_exists) {
      const std::error_code reason = error;
      if (!made_parent_.empty()) fs::remove(made_parent_, error);
      cannot_make(path_, reason);
    }
    if (chosen)
      throw UsageError(
          "the run folder {} exists: continue it with --resume, or choose another --name or --output-dir",
          path_.string());
  }
}

RunFolder::RunFolder(const fs::path& existing) : path_(existing), keep_(true) {
  if (!fs::is_directory(path_)) throw UsageError("{} is not a run folder", path_.string());
  lock_ = hold(path_);
  for (const fs::path& folder : {path_, checkpoints()}) {
    if (!fs::is_directory(folder)) continue;
    remove_staging(folder);
    remove_partial_files(folder);
  }
}

void RunFolder::remove_records() const {
  std::vector<fs::path> records;
  for (const fs::directory_entry& entry : fs::directory_iterator(path_)) {
    const std::string file = entry.path().filename().string();
    if (file == "metrics.jsonl" || file == "mlperf.log" || file.find("tfevents") != std::string::npos)
      records.push_back(entry.path());
  }
  for (const fs::path& record : records) fs::remove(record);
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
