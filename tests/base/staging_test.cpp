#include "base/staging.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/atomic_file.h"
#include "base/error.h"
#include "temporary_folder.h"

namespace redline {
namespace {

TEST(Staging, AppearsOnlyWhenCommitted) {
  const TemporaryFolder folder;
  {
    StagingFolder staging(folder / "out");
    write_file_atomically(staging.path() / "a", "abc");
    EXPECT_FALSE(std::filesystem::exists(folder / "out"));
    staging.commit(Sync::yes);
  }
  EXPECT_TRUE(std::filesystem::exists(folder / "out" / "a"));
  EXPECT_EQ(folder.entries(), 1);
}

TEST(Staging, LeavesNothingWithoutCommit) {
  const TemporaryFolder folder;
  {
    const StagingFolder staging(folder / "out");
    write_file_atomically(staging.path() / "a", "abc");
  }
  EXPECT_EQ(folder.entries(), 0);
}

TEST(Staging, TakesAnEmptyFolderATrailingSlashAndMissingParents) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "empty");
  StagingFolder(folder / "empty/").commit();
  StagingFolder(folder / "a/b/c").commit();
  EXPECT_TRUE(std::filesystem::is_directory(folder / "a/b/c"));
  EXPECT_EQ(folder.entries(), 2);
}

TEST(Staging, RefusesWhatIsThere) {
  const TemporaryFolder folder;
  write_file_atomically(folder / "file", "abc");
  EXPECT_THROW(StagingFolder(folder / "file"), UsageError);
  EXPECT_THROW(StagingFolder(folder.path()), UsageError);
  EXPECT_THROW(StagingFolder(""), UsageError);
  EXPECT_EQ(folder.entries(), 1);
}

TEST(FolderLock, IsHeldByOneAtATime) {
  const TemporaryFolder folder;
  write_file_atomically(folder / "a", "abc");
  {
    const FolderLock lock(folder / "a");
    EXPECT_THROW(FolderLock(folder / "a"), TryAgainError);
  }
  EXPECT_NO_THROW(FolderLock(folder / "a"));
  EXPECT_THROW(FolderLock(folder / "b"), IoError);
  const FolderLock whole(folder.path());  // the folder itself
  EXPECT_THROW(FolderLock(folder.path()), TryAgainError);
}

}  // namespace
}  // namespace redline
