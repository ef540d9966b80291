#include "base/staging.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/error.h"
#include "base/process.h"

namespace redline {
namespace fs = std::filesystem;

namespace {

constexpr const char* kMark = ".partial-";  // between the target's name and the process id

// Removes what processes that no longer run left of the same target.
void remove_abandoned(const fs::path& parent, const std::string& prefix) {
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(parent, ignored)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(prefix)) continue;
    const long pid = std::strtol(name.c_str() + prefix.size(), nullptr, 10);
    if (pid > 0 && !is_running(static_cast<pid_t>(pid))) fs::remove_all(entry.path(), ignored);
  }
}

}  // namespace

StagingFolder::StagingFolder(const fs::path& target) {
  if (target.empty()) throw UsageError("the folder to write to has no name");
  std::error_code error;
  target_ = fs::absolute(target, error).lexically_normal();
  if (!target_.has_filename()) target_ = target_.parent_path();  // "dir/" means dir
  const fs::file_status status = fs::status(target_, error);
  if (fs::exists(status) && !(fs::is_directory(status) && fs::is_empty(target_, error)))
    throw UsageError("{} exists already and is not an empty folder; choose another name or remove it",
                     target.string());
  const std::string prefix = fmt::format(".{}{}", target_.filename().string(), kMark);
  remove_abandoned(target_.parent_path(), prefix);
  path_ = target_.parent_path() / fmt::format("{}{}", prefix, ::getpid());
  fs::create_directories(path_, error);
  if (error) throw IoError("cannot create the folder {}: {}", path_.string(), error.message());
}

StagingFolder::~StagingFolder() {
  std::error_code ignored;
  if (!committed_) fs::remove_all(path_, ignored);
}

void StagingFolder::commit(Sync sync) {
  if (sync == Sync::yes) sync_folder(path_);
  std::error_code error;
  fs::rename(path_, target_, error);
  if (error) throw IoError("cannot rename {} to {}: {}", path_.string(), target_.string(), error.message());
  committed_ = true;
  if (sync == Sync::yes) sync_folder(target_.parent_path());
}

void remove_staging(const fs::path& parent) {
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(parent, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with('.') && name.find(kMark) != std::string::npos) fs::remove_all(entry.path(), ignored);
  }
}

FolderLock::FolderLock(const fs::path& path) : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
  if (fd_ < 0) throw IoError("cannot open {}: {}", path.string(), std::strerror(errno));
  if (::flock(fd_, LOCK_EX | LOCK_NB) == 0) return;
  const int reason = errno;
  ::close(fd_);
  if (reason == EWOULDBLOCK) {
    std::error_code ignored;
    const fs::path folder = fs::is_directory(path, ignored) ? path : path.parent_path();
    throw TryAgainError("another process is writing to {}; wait for it", folder.string());
  }
  throw IoError("cannot lock {}: {}", path.string(), std::strerror(reason));
}

FolderLock::~FolderLock() { ::close(fd_); }

}  // namespace redline
