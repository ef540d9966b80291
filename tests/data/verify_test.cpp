#include "data/prepare/verify.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "base/temporary_folder.h"
#include "data/pictures.h"
#include "data/prepare/info.h"

namespace redline::data {
namespace {

namespace fs = std::filesystem;

void put(const fs::path& path, const std::vector<std::uint8_t>& bytes) {
  fs::create_directories(path.parent_path());
  write_whole(path, bytes);
}

TEST(Verify, FindsEveryKindOfDamage) {
  const TemporaryFolder folder;
  const std::vector<std::uint8_t> good = gradient_jpeg(40, 30);
  put(folder / "train/a/1.jpg", good);
  put(folder / "train/a/2.jpg", {good.begin(), good.end() - 200});
  put(folder / "train/a/3.jpg", {});
  put(folder / "train/a/4.png", {'t', 'e', 'x', 't'});
  put(folder / "train/b/5.jpg", gradient_jpeg(60, 20));
  std::vector<std::uint8_t> odd = good;
  odd.insert(odd.end() - 2, 40, 0x55);
  put(folder / "train/b/6.jpg", odd);
  put(folder / "val/b/7.jpg", gradient_jpeg(500, 500));
  VerifyOptions options;
  options.threads = 3;
  options.limits.max_pixels = 100'000;
  const Verification result = verify(folder.path(), options);
  EXPECT_EQ(result.images(), 7);
  EXPECT_EQ(result.bad(), 4);
  ASSERT_EQ(result.splits.size(), 2u);
  const VerifiedSplit& train = result.splits[0];
  EXPECT_EQ(train.per_class, (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(train.max_width, 60);
  EXPECT_EQ(train.min_height, 20);
  ASSERT_EQ(train.bad.size(), 3u);
  EXPECT_EQ(train.bad[0].name, (folder / "train/a/2.jpg").string());
  EXPECT_NE(train.bad[0].reason.find("cut off"), std::string::npos);
  EXPECT_NE(train.bad[1].reason.find("empty"), std::string::npos);
  EXPECT_NE(train.bad[2].reason.find("not an image"), std::string::npos);
  ASSERT_EQ(train.odd.size(), 1u);
  EXPECT_EQ(train.odd[0].name, (folder / "train/b/6.jpg").string());
  EXPECT_NE(result.splits[1].bad[0].reason.find("pixels"), std::string::npos);
}

TEST(Verify, ThreadsDoNotChangeTheResult) {
  const TemporaryFolder folder;
  for (int i = 0; i < 60; ++i) {
    std::vector<std::uint8_t> bytes = gradient_jpeg(20 + i, 30);
    if (i % 7 == 0) bytes.resize(50);
    put(folder / fmt::format("train/{}/{}.jpg", i % 3, i), bytes);
  }
  VerifyOptions one, many;
  many.threads = 5;
  const Verification a = verify(folder.path(), one), b = verify(folder.path(), many);
  ASSERT_EQ(a.splits[0].bad.size(), 9u);
  for (std::size_t i = 0; i < 9; ++i) EXPECT_EQ(a.splits[0].bad[i].name, b.splits[0].bad[i].name);
  EXPECT_EQ(a.splits[0].per_class, b.splits[0].per_class);
  EXPECT_EQ(a.splits[0].bytes, b.splits[0].bytes);
  EXPECT_EQ(a.splits[0].pixels, b.splits[0].pixels);
}

// Six threads would need 1.2 GiB for these files at the same time; all together may use half a GiB.
TEST(Verify, LargeFilesTakeTurns) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the thread sanitizer's shadow of memory takes several times as much";
#endif
  const auto peak_mib = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss >> 10;
  };
  const TemporaryFolder folder;
  for (int i = 0; i < 6; ++i) {
    const fs::path path = folder / fmt::format("train/{}/{}.jpg", i % 2, i);
    put(path, {});
    fs::resize_file(path, 200 << 20);  // zeros, which take no room on the disk
  }
  VerifyOptions options;
  options.threads = 6;
  const auto before = peak_mib();
  EXPECT_EQ(verify(folder.path(), options).bad(), 6);
  EXPECT_LT(peak_mib() - before, 900);  // sanitizers keep what was freed for a while
}

TEST(Info, CountsAndMeasures) {
  const TemporaryFolder folder;
  put(folder / "train/a/1.jpg", gradient_jpeg(40, 30));
  put(folder / "train/a/2.jpg", gradient_jpeg(60, 50));
  put(folder / "train/b/3.jpg", bytes_of(golden("grey.jpg")));
  put(folder / "val/b/4.png", {1, 2, 3});
  const DataInfo info = inspect(folder.path(), 100);
  EXPECT_EQ(info.classes, (std::vector<std::string>{"a", "b"}));
  ASSERT_EQ(info.splits.size(), 2u);
  EXPECT_EQ(info.splits[0].images, 3);
  EXPECT_EQ(info.splits[0].fewest, 1);
  EXPECT_EQ(info.splits[0].most, 2);
  EXPECT_EQ(info.splits[0].formats.at("JPEG"), 2);
  EXPECT_EQ(info.splits[0].formats.at("JPEG grey"), 1);
  EXPECT_EQ(info.splits[0].max_width, 150);
  EXPECT_EQ(info.splits[1].without, 1);
  EXPECT_EQ(info.splits[1].unreadable, 1);
  EXPECT_EQ(inspect(folder.path(), 2).splits[0].looked_at, 2);
}

}  // namespace
}  // namespace redline::data
