// Folders that one process fills: those that appear complete or not at all, and those that grow file by file.
#pragma once

#include <filesystem>

#include "base/atomic_file.h"

namespace redline {

// Filled under a temporary name, then renamed. One thread creates and destroys it; any may write files under
// path().
class StagingFolder {
 public:
  // Creates a hidden folder next to `target`, and target's parents if missing, and removes hidden folders
  // left by processes that no longer run on this machine. Throws UsageError if target exists and is not an
  // empty folder, IoError if the file system refuses.
  explicit StagingFolder(const std::filesystem::path& target);
  // Without commit(), removes the folder and all in it.
  ~StagingFolder();
  StagingFolder(const StagingFolder&) = delete;
  StagingFolder& operator=(const StagingFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

  // Gives the folder its name. Sync::yes makes the folder and its name survive a power cut; the files in it
  // are synced by those who write them. IoError on failure.
  void commit(Sync sync = Sync::no);

 private:
  std::filesystem::path target_;
  std::filesystem::path path_;
  bool committed_ = false;
};

// Removes the staging folders left in `parent` by any process. Requires its FolderLock.
void remove_staging(const std::filesystem::path& parent);

// Reserves a folder for one process, by a lock on it or on a file in it, for the lifetime of this object or
// the process.
class FolderLock {
 public:
  // The folder, or the file in it, must exist. Throws TryAgainError if another process holds the lock,
  // IoError if it cannot be opened or the file system has no locks.
  explicit FolderLock(const std::filesystem::path& path);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int fd_ = -1;
};

}  // namespace redline
