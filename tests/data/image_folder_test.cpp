#include "data/sources/image_folder.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/temporary_folder.h"
#include "data/pictures.h"
#include "data/progress.h"

namespace redline::data {
namespace {

namespace fs = std::filesystem;

void put(const fs::path& path, const std::vector<std::uint8_t>& bytes = {1, 2, 3}) {
  fs::create_directories(path.parent_path());
  write_whole(path, bytes);
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(ImageFolder, ListingEndsWhenAskedTo) {
  const TemporaryFolder folder;
  for (const char* name : {"train/ape/1.jpg", "train/cat/1.jpg", "train/dog/1.jpg"}) put(folder / name);
  int asked = 0;
  SourceOptions options;
  options.stop = [&] { return ++asked == 2; };
  EXPECT_THROW(open_source(folder.path(), Split::train, options), Stopped);
  EXPECT_EQ(asked, 2);
}

TEST(ImageFolder, NumbersClassesAndSamplesByName) {
  const TemporaryFolder folder;
  for (const char* name : {"train/cat/b.jpg", "train/cat/a.JPEG", "train/ape/x.png", "train/ape/deep/y.jpeg",
                           "val/cat/1.jpg", "train/ape/notes.txt", "train/ape/.hidden.jpg"})
    put(folder / name);
  const auto train = open_source(folder.path(), Split::train);
  EXPECT_EQ(train->classes(), (std::vector<std::string>{"ape", "cat"}));
  ASSERT_EQ(train->count(), 4);
  EXPECT_EQ(train->name(0), (folder / "train/ape/deep/y.jpeg").string());
  EXPECT_EQ(train->name(1), (folder / "train/ape/x.png").string());
  EXPECT_EQ(train->name(2), (folder / "train/cat/a.JPEG").string());
  EXPECT_EQ(train->label(1), 0);
  EXPECT_EQ(train->label(3), 1);
  const auto val = open_source(folder.path(), Split::val);
  ASSERT_EQ(val->count(), 1);
  EXPECT_EQ(val->label(0), 1);  // numbered as in train, though val has no ape
  FileBytes memory;
  const auto bytes = val->read(0, memory);
  EXPECT_EQ(std::vector<std::uint8_t>(bytes.begin(), bytes.end()), (std::vector<std::uint8_t>{1, 2, 3}));
}

TEST(ImageFolder, HasSplitTellsWhatIsThere) {
  const TemporaryFolder folder;
  put(folder / "train/a/1.jpg");
  EXPECT_TRUE(has_split(folder.path(), Split::train));
  EXPECT_FALSE(has_split(folder.path(), Split::val));
  put(folder / "validation/a/1.jpg");
  EXPECT_TRUE(has_split(folder.path(), Split::val));
}

TEST(ImageFolder, MistakesAreNamedWithTheRemedy) {
  const TemporaryFolder folder;
  const fs::path path = folder.path();
  const auto message = [&](Split split) { return message_of<Error>([&] { open_source(path, split); }); };
  EXPECT_TRUE(
      contains(message_of<UsageError>([&] { open_source(path / "nowhere", Split::train); }), "nowhere"));
  const auto usage = [&] { return message_of<UsageError>([&] { open_source(path, Split::train); }); };
  EXPECT_TRUE(contains(usage(), "it is empty"));
  put(path / "file.bin");
  EXPECT_TRUE(contains(usage(), "neither a train nor"));
  EXPECT_TRUE(
      contains(message_of<UsageError>([&] { open_source(path / "file.bin", Split::train); }), "file.bin"));
  fs::create_directory(path / "train");
  EXPECT_TRUE(contains(message(Split::train), "no class folders"));
  put(path / "train/cat/1.jpg");
  EXPECT_TRUE(contains(message_of<UsageError>([&] { open_source(path, Split::val); }), "no val folder"));
  fs::create_directory(path / "train/dog");
  EXPECT_TRUE(contains(message(Split::train), "train/dog has no images"));
  put(path / "train/dog/1.jpg");
  put(path / "val/cow/1.jpg");
  EXPECT_TRUE(contains(message(Split::val), "class cow"));
}

TEST(ImageFolder, ReadsTinyImageNetAsShipped) {
  const TemporaryFolder folder;
  put(folder / "train/n01/images/n01_0.JPEG");
  put(folder / "train/n02/images/n02_0.JPEG");
  put(folder / "train/n02/n02_boxes.txt");
  put(folder / "val/images/val_0.JPEG", {7});
  put(folder / "val/images/val_1.JPEG", {8});
  const auto annotate = [&](const std::string& text) {
    fs::remove(folder / "val/val_annotations.txt");
    put(folder / "val/val_annotations.txt", {text.begin(), text.end()});
  };
  annotate("val_0.JPEG\tn02\t0\t32\t44\t62\nval_1.JPEG\tn01\t52\t55\t57\t59\n");
  EXPECT_EQ(open_source(folder.path(), Split::train)->count(), 2);
  const auto val = open_source(folder.path(), Split::val);
  ASSERT_EQ(val->count(), 2);
  EXPECT_EQ(val->label(0), 1);
  EXPECT_EQ(val->label(1), 0);
  FileBytes memory;
  EXPECT_EQ(val->read(1, memory)[0], 8);
  EXPECT_EQ(val->name(0), (folder / "val/images/val_0.JPEG").string());
  for (const char* wrong : {"val_0.JPEG\tn03\t0\n", "val_0.JPEG\n", "../x.JPEG\tn01\n", "", "\tn01\n"}) {
    annotate(wrong);
    EXPECT_TRUE(contains(message_of<DataError>([&] { open_source(folder.path(), Split::val); }),
                         "val_annotations.txt"))
        << wrong;
  }
}

TEST(ImageFolder, LinksAreFollowedAndCirclesRefused) {
  const TemporaryFolder folder;
  put(folder / "elsewhere/1.jpg");
  put(folder / "data/train/cat/2.jpg");
  fs::create_directory_symlink(folder / "elsewhere", folder / "data/train/dog");
  fs::create_symlink(folder / "nothing", folder / "data/train/cat/dangling");
  EXPECT_EQ(open_source(folder / "data", Split::train)->count(), 2);
  fs::create_directory_symlink(folder / "data/train/cat", folder / "data/train/cat/again");
  EXPECT_TRUE(
      contains(message_of<DataError>([&] { open_source(folder / "data", Split::train); }), "cat/again"));
}

TEST(ImageFolder, AFileThatVanishedOrGrewIsAnError) {
  const TemporaryFolder folder;
  put(folder / "train/cat/1.jpg");
  SourceOptions options;
  options.max_bytes = 2;
  const auto source = open_source(folder.path(), Split::train, options);
  FileBytes memory;
  EXPECT_THROW(source->read(0, memory), DataError);
  fs::remove(folder / "train/cat/1.jpg");
  EXPECT_THROW(source->read(0, memory), IoError);
}

}  // namespace
}  // namespace redline::data
