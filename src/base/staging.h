// Folders that are filled by one process: those that appear whole or not at all, and those that grow file by
// file.
#pragma once

#include <filesystem>

#include "base/atomic_file.h"

namespace redline {

// Filled beside its final name, then renamed. One thread makes and ends it; any may write files under path().
class StagingFolder {
 public:
  // Creates a hidden folder beside `target`, and target's parents where missing, and removes those that
  // processes of this machine that no longer run left there. Throws UsageError when
  // target is there and not an empty folder, IoError when the file system refuses.
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

// Removes what StagingFolders left behind in one folder, whoever made them: for the one who holds its lock.
void remove_staging(const std::filesystem::path& parent);

// Holds a folder for one process, by a lock on it or on a file in it, as long as it lives (and no longer than
// the process).
class FolderLock {
 public:
  // The folder, or the file in it, is there already. Throws TryAgainError when another process holds it,
  // IoError when it cannot be opened or the file system has no such locks.
  explicit FolderLock(const std::filesystem::path& path);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int fd_ = -1;
};

}  // namespace redline
