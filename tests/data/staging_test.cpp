#include "data/staging.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"
#include "base/temporary_folder.h"
#include "data/file.h"

namespace redline::data {
namespace {

const std::vector<std::uint8_t> kBytes{1, 2, 3};

TEST(Staging, AppearsOnlyWhenCommitted) {
  const TemporaryFolder folder;
  {
    StagingFolder staging(folder / "out");
    write_whole(staging.path() / "a", kBytes);
    EXPECT_FALSE(std::filesystem::exists(folder / "out"));
    staging.commit();
  }
  EXPECT_TRUE(std::filesystem::exists(folder / "out" / "a"));
  EXPECT_EQ(folder.entries(), 1);
}

TEST(Staging, LeavesNothingWithoutCommit) {
  const TemporaryFolder folder;
  {
    const StagingFolder staging(folder / "out");
    write_whole(staging.path() / "a", kBytes);
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
  write_whole(folder / "file", kBytes);
  EXPECT_THROW(StagingFolder(folder / "file"), UsageError);
  EXPECT_THROW(StagingFolder(folder.path()), UsageError);
  EXPECT_THROW(StagingFolder(""), UsageError);
  EXPECT_EQ(folder.entries(), 1);
}

TEST(FolderLock, IsHeldByOneAtATime) {
  const TemporaryFolder folder;
  write_whole(folder / "a", kBytes);
  {
    const FolderLock lock(folder / "a");
    EXPECT_THROW(FolderLock(folder / "a"), TryAgainError);
  }
  EXPECT_NO_THROW(FolderLock(folder / "a"));
  EXPECT_THROW(FolderLock(folder / "b"), IoError);
}

TEST(File, ReadsWhatWasWritten) {
  const TemporaryFolder folder;
  write_whole(folder / "a", kBytes);
  std::vector<std::uint8_t> scratch(100);
  const auto bytes = read_whole(folder / "a", 1000, scratch);
  EXPECT_EQ(std::vector<std::uint8_t>(bytes.begin(), bytes.end()), kBytes);
  EXPECT_THROW(write_whole(folder / "a", kBytes), IoError);  // never over another file
}

TEST(File, RefusesFoldersLargeFilesAndMissingOnes) {
  const TemporaryFolder folder;
  write_whole(folder / "a", kBytes);
  std::vector<std::uint8_t> scratch;
  EXPECT_THROW(read_whole(folder / "a", 2, scratch), DataError);
  EXPECT_THROW(read_whole(folder.path(), 1000, scratch), DataError);
  EXPECT_THROW(read_whole(folder / "b", 1000, scratch), IoError);
}

// /dev/full fails every write as a full disk does.
TEST(File, AFullDiskIsAnIoError) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  const TemporaryFolder folder;
  try {
    write_whole("/dev/full", kBytes);
    FAIL() << "wrote to a full disk";
  } catch (const IoError&) {
  }
}

}  // namespace
}  // namespace redline::data
