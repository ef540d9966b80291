#include "data/sources/devkit.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/temporary_folder.h"
#include "data/pictures.h"

namespace redline::data {
namespace {

Devkit small() {
  return {{{1, "n02", "a thing, or two", true}, {2, "n01", "", true}, {3, "n00", "things", false}},
          {2, 2, 1, 2}};
}

Devkit written_and_read(const TemporaryFolder& folder, const std::vector<std::uint8_t>& bytes) {
  std::filesystem::remove(folder / "kit.tar.gz");
  write_whole(folder / "kit.tar.gz", bytes);
  return read_devkit(folder / "kit.tar.gz");
}

TEST(Devkit, WhatIsWrittenIsRead) {
  const TemporaryFolder folder;
  EXPECT_EQ(written_and_read(folder, serialize_devkit(small())), small());
  EXPECT_EQ(serialize_devkit(small()), serialize_devkit(small()));
}

// tests/data/make_golden.py wrote it with SciPy, compressed, the way ImageNet's own is.
TEST(Devkit, ReadsWhatAnotherProgramWrote) {
  const std::vector<Synset> synsets = parse_meta(bytes_of(golden("meta.mat")));
  ASSERT_EQ(synsets.size(), 3u);
  EXPECT_EQ(synsets[0], (Synset{1, "n02119789", "kit fox, Vulpes macrotis", true}));
  EXPECT_EQ(synsets[1], (Synset{2, "n02100735", "English setter", true}));
  EXPECT_EQ(synsets[2], (Synset{1001, "n00001740", "entity", false}));
}

TEST(Devkit, RefusesWhatContradictsItself) {
  const TemporaryFolder folder;
  const auto complaint = [&](const Devkit& devkit) {
    return message_of<DataError>([&] { written_and_read(folder, serialize_devkit(devkit)); });
  };
  Devkit kit = small();
  kit.ground_truth.push_back(3);  // a group, not a class
  EXPECT_NE(complaint(kit).find("line 5 names class 3"), std::string::npos) << complaint(kit);
  kit = small();
  kit.synsets[1].id = 1;
  EXPECT_NE(complaint(kit).find("two classes have the number 1"), std::string::npos);
  kit = small();
  kit.synsets[1].wnid = "n02";
  EXPECT_NE(complaint(kit).find("two classes are called n02"), std::string::npos);
  for (const char* wnid : {"", "..", "../up", "a/b", "a b"}) {
    kit = small();
    kit.synsets[0].wnid = wnid;
    EXPECT_NE(complaint(kit).find("class 1 has no usable WNID"), std::string::npos) << complaint(kit);
  }
}

TEST(Devkit, EveryCutAndManyDamagesAreRefusedOrHarmless) {
  const TemporaryFolder folder;
  const std::vector<std::uint8_t> whole = serialize_devkit(small());
  for (std::size_t size = 0; size + 24 < whole.size(); size += 7) {
    const std::vector<std::uint8_t> cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_THROW(written_and_read(folder, cut), DataError) << size;
  }
  const std::vector<std::uint8_t> meta = bytes_of(golden("meta.mat"));
  Random random(3);
  int refused = 0;
  for (int i = 0; i < 500; ++i) {
    std::vector<std::uint8_t> damaged = meta;
    for (int k = 0; k < 3; ++k)
      damaged[random.below(damaged.size())] = static_cast<std::uint8_t>(random.below(256));
    try {
      parse_meta(damaged);
    } catch (const DataError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 100);
  EXPECT_THROW(parse_meta({}), DataError);
}

TEST(Devkit, GroundTruthIsANumberALine) {
  EXPECT_EQ(parse_ground_truth("1\n20\r\n3"), (std::vector<int>{1, 20, 3}));
  EXPECT_EQ(parse_ground_truth(""), std::vector<int>{});
  for (const char* text : {"0\n", "-1\n", "x\n", "1 2\n", "1\n\n2\n", "99999999999\n"})
    EXPECT_THROW(parse_ground_truth(text), DataError) << text;
}

TEST(Devkit, AMissingFileAndAnotherArchiveAreNamed) {
  const TemporaryFolder folder;
  EXPECT_NE(message_of<IoError>([&] { read_devkit(folder / "none"); }).find("none"), std::string::npos);
  write_whole(folder / "text", std::vector<std::uint8_t>(2000, 'x'));
  EXPECT_NE(message_of<DataError>([&] { read_devkit(folder / "text"); }).find("text"), std::string::npos);
}

}  // namespace
}  // namespace redline::data
