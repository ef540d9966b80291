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
  FileBytes memory;
  const auto bytes = read_whole(folder / "a", 1000, memory);
  EXPECT_EQ(std::vector<std::uint8_t>(bytes.begin(), bytes.end()), kBytes);
  EXPECT_THROW(write_whole(folder / "a", kBytes), IoError);  // never over another file
}

TEST(File, ComparesContent) {
  const TemporaryFolder folder;
  std::vector<std::uint8_t> large(3 << 20, 7);
  write_whole(folder / "a", large);
  EXPECT_TRUE(has_content(folder / "a", large));
  for (const std::size_t at : {std::size_t{0}, large.size() / 2, large.size() - 1}) {
    large[at] ^= 1;
    EXPECT_FALSE(has_content(folder / "a", large)) << at;
    large[at] ^= 1;
  }
  large.pop_back();
  EXPECT_FALSE(has_content(folder / "a", large));
  EXPECT_FALSE(has_content(folder / "b", large));
  write_whole(folder / "b", {});
  EXPECT_TRUE(has_content(folder / "b", {}));
}

TEST(File, RefusesFoldersLargeFilesAndMissingOnes) {
  const TemporaryFolder folder;
  write_whole(folder / "a", kBytes);
  FileBytes memory;
  EXPECT_THROW(read_whole(folder / "a", 2, memory), DataError);
  EXPECT_THROW(read_whole(folder.path(), 1000, memory), DataError);
  EXPECT_THROW(read_whole(folder / "b", 1000, memory), IoError);
}

// /dev/full fails every write as a full disk does.
TEST(File, AFullDiskIsAnIoError) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  EXPECT_THROW(write_whole("/dev/full", kBytes), IoError);
}

}  // namespace
}  // namespace redline::data
