#include "data/file.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/error.h"
#include "base/temporary_folder.h"

namespace redline::data {
namespace {

const std::vector<std::uint8_t> kBytes{1, 2, 3};

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
  EXPECT_THROW(write_whole("/dev/full", kBytes), IoError);
}

}  // namespace
}  // namespace redline::data
