#include "data/prepare/unpack.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "base/error.h"
#include "base/temporary_folder.h"
#include "data/archives.h"
#include "data/bad_limit.h"
#include "data/pictures.h"
#include "data/prepare/convert.h"
#include "data/prepare/synth.h"
#include "data/prepare/tiny_imagenet.h"
#include "data/sources/ilsvrc.h"

namespace redline::data {
namespace {

namespace fs = std::filesystem;

void put(const fs::path& path, const std::vector<std::uint8_t>& bytes) {
  fs::create_directories(path.parent_path());
  write_whole(path, bytes);
}

void put(const fs::path& path, const std::string& text) {
  put(path, std::vector<std::uint8_t>(text.begin(), text.end()));
}

// Every file under a folder, by its path there.
std::map<std::string, std::vector<std::uint8_t>> files(const fs::path& folder) {
  std::map<std::string, std::vector<std::uint8_t>> all;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) all[fs::relative(entry.path(), folder).string()] = bytes_of(entry.path());
  return all;
}

std::multiset<std::pair<std::string, std::string>> samples(const fs::path& path, Split split) {
  const auto source = open_source(path, split);
  std::multiset<std::pair<std::string, std::string>> all;
  FileBytes memory;
  for (std::int64_t i = 0; i < source->count(); ++i) {
    const auto bytes = source->read(i, memory);
    all.emplace(source->classes()[static_cast<std::size_t>(source->label(i))],
                std::string(bytes.begin(), bytes.end()));
  }
  return all;
}

struct Tars {
  TemporaryFolder folder;

  Tars() {
    SynthOptions options;
    options.path = folder / "tars";
    options.format = SynthFormat::tars;
    options.classes = 4;
    options.train = 30;
    options.val = 9;
    options.width = options.height = 24;
    write_synth(options);
  }
  UnpackOptions options(const char* target, int threads = 2) const {
    UnpackOptions o;
    o.source = folder / "tars";
    o.target = folder / target;
    o.threads = threads;
    return o;
  }
};

// The way of ImageNet: tars to folders to records to folders, with the same images and labels all the way.
TEST(Unpack, TheSameImagesAndLabelsThroughEverySource) {
  const Tars tars;
  const UnpackResult result = unpack_to_folders(tars.options("folders"));
  EXPECT_EQ(result.written, 39);
  EXPECT_EQ(result.found, 0);
  EXPECT_TRUE(result.bad.empty());
  ConvertOptions convert;
  convert.source = tars.folder / "folders";
  convert.target = tars.folder / "records";
  convert.train_shards = 3;
  convert.val_shards = 2;
  convert_to_tfrecord(convert);
  UnpackOptions back;
  back.source = convert.target;
  back.target = tars.folder / "back";
  unpack_to_folders(back);
  for (const Split split : {Split::train, Split::val})
    for (const char* name : {"folders", "records", "back"})
      EXPECT_EQ(samples(tars.folder / name, split), samples(tars.folder / "tars", split)) << name;
  auto there = files(tars.folder / "folders"), and_back = files(tars.folder / "back");
  there.erase("prepare.json");  // names the samples of different sources
  and_back.erase("prepare.json");
  EXPECT_EQ(there, and_back);
  EXPECT_TRUE(there.contains("val/" + open_source(tars.folder / "tars", Split::val)->classes()[0] +
                             "/ILSVRC2012_val_00000001.JPEG"));
}

TEST(Unpack, GoesOnWhereItWasStopped) {
  const Tars tars;
  unpack_to_folders(tars.options("whole"));
  for (std::int64_t limit = 1; limit < 39; limit += 6)
    EXPECT_THROW(unpack_to_folders(tars.options("parts", 1),
                                   [&](std::int64_t done, std::int64_t) { return done < limit; }),
                 Stopped);
  EXPECT_TRUE(fs::exists(tars.folder / "parts" / kUnfinishedFile));
  const UnpackResult result = unpack_to_folders(tars.options("parts"));
  EXPECT_FALSE(fs::exists(tars.folder / "parts" / kUnfinishedFile));
  EXPECT_GT(result.found, 0);
  EXPECT_EQ(result.found + result.written, 39);
  EXPECT_EQ(files(tars.folder / "parts"), files(tars.folder / "whole"));
}

TEST(Unpack, WhatIsThereIsComparedAndRepaired) {
  const Tars tars;
  unpack_to_folders(tars.options("out"));
  const auto whole = files(tars.folder / "out");
  const auto victim = std::next(whole.begin(), 5);
  std::vector<std::uint8_t> damaged = victim->second;
  damaged[damaged.size() / 2] ^= 1;
  fs::remove(tars.folder / "out" / victim->first);
  put(tars.folder / "out" / victim->first, damaged);
  fs::remove(tars.folder / "out" / std::next(victim, 3)->first);
  const fs::path half = (tars.folder / "out" / victim->first).parent_path() / ".x.JPEG.123-4.partial";
  put(half, std::string("half"));
  const UnpackResult result = unpack_to_folders(tars.options("out"));
  EXPECT_EQ(result.written, 2);
  EXPECT_EQ(result.found, 37);
  EXPECT_EQ(files(tars.folder / "out"), whole);
}

TEST(Unpack, RefusesAFolderWithSomethingElse) {
  const Tars tars;
  put(tars.folder / "mine/file", std::string("text"));
  EXPECT_THROW(unpack_to_folders(tars.options("mine")), UsageError);
  EXPECT_EQ(files(tars.folder / "mine").size(), 1u);
}

TEST(Unpack, BadImagesAreLeftOutUpToTheLimit) {
  const TemporaryFolder folder;
  put(folder / "in/train/a/1.jpg", gradient_jpeg(16, 16));
  put(folder / "in/train/a/2.jpg", std::string("no image"));
  put(folder / "in/train/b/deep/3.jpg", gradient_jpeg(18, 18));
  UnpackOptions options;
  options.source = folder / "in";
  options.target = folder / "out";
  options.max_bad = 0;
  EXPECT_THROW(unpack_to_folders(options), DataError);
  options.max_bad = 0.5;
  const UnpackResult result = unpack_to_folders(options);
  ASSERT_EQ(result.bad.size(), 1u);
  EXPECT_TRUE(result.bad[0].name.ends_with("2.jpg"));
  EXPECT_EQ(result.written + result.found, 2);
  EXPECT_TRUE(fs::exists(folder / "out/train/b/3.jpg"));
}

// A file that cannot be read is one bad image like others, with its name.
TEST(Unpack, AnUnreadableFileIsNamedAndLeftOut) {
  const TemporaryFolder folder;
  put(folder / "in/train/a/1.jpg", gradient_jpeg(16, 16));
  fs::create_symlink(folder / "nothing", folder / "in/train/a/2.jpg");
  UnpackOptions options;
  options.source = folder / "in";
  options.target = folder / "out";
  const UnpackResult result = unpack_to_folders(options);
  ASSERT_EQ(result.bad.size(), 1u);
  EXPECT_TRUE(result.bad[0].name.ends_with("in/train/a/2.jpg"));
  EXPECT_EQ(result.written, 1);
}

TEST(Unpack, OneBadImageEndsNoWorkUnlessNoneMayBe) {
  EXPECT_EQ(bad_limit(0.001, 3), 1);
  EXPECT_EQ(bad_limit(0.001, 100), 5);
  EXPECT_EQ(bad_limit(0.001, 1'000), 10);
  EXPECT_EQ(bad_limit(0.001, 1'281'167), 1281);
  EXPECT_EQ(bad_limit(0.5, 100), 50);
  EXPECT_EQ(bad_limit(0, 1'000'000), 0);
  EXPECT_THROW(bad_limit(1.5, 10), UsageError);
}

// The first of the data set keeps the name, whatever the threads' timing and wherever work was interrupted.
TEST(Unpack, ImagesOfOneNameGetNumbers) {
  const TemporaryFolder folder;
  std::vector<std::uint8_t> first;
  constexpr int kCopies = 40;
  for (int i = 0; i < kCopies; ++i) {
    // The first takes the longest, so that other threads come before it.
    const std::vector<std::uint8_t> image = i == 0 ? gradient_jpeg(3000, 2000) : gradient_jpeg(16 + i, 16);
    if (i == 0) first = image;
    put(folder / fmt::format("in/train/a/{:02}/1.jpg", i), image);
  }
  put(folder / "in/train/a/x/1-2.jpg", gradient_jpeg(99, 16));
  put(folder / "in/train/b/1.jpg", gradient_jpeg(98, 16));
  UnpackOptions options;
  options.source = folder / "in";
  options.target = folder / "whole";
  const UnpackResult result = unpack_to_folders(options);
  EXPECT_EQ(result.written, kCopies + 2);
  ASSERT_EQ(result.renamed.size(), kCopies - 1u);
  EXPECT_EQ(result.renamed[0].from, (folder / "in/train/a/01/1.jpg").string());
  EXPECT_EQ(result.renamed[0].to, folder / "whole/train/a/1-3.jpg") << "1-2.jpg is another's name";
  const auto whole = files(folder / "whole");
  EXPECT_EQ(whole.at("train/a/1.jpg"), first);
  EXPECT_EQ(samples(folder / "whole", Split::train), samples(folder / "in", Split::train));

  options.threads = 8;
  options.target = folder / "threads";
  for (std::int64_t limit = 1; limit < kCopies + 2; limit += 4)
    EXPECT_THROW(unpack_to_folders(options, [&](std::int64_t done, std::int64_t) { return done < limit; }),
                 Stopped);
  EXPECT_EQ(unpack_to_folders(options).renamed.size(), result.renamed.size());
  EXPECT_EQ(files(folder / "threads"), whole);
  const UnpackResult again = unpack_to_folders(options);
  EXPECT_EQ(again.found + again.written, kCopies + 2);
  EXPECT_EQ(files(folder / "threads"), whole);
  options.threads = 1;
  EXPECT_EQ(unpack_to_folders(options).found, kCopies + 2);
}

// Records name their files only when they are read.
TEST(Unpack, RecordsOfOneNameGetNumbers) {
  const TemporaryFolder folder;
  put(folder / "in/train/a/x/1.png", encode_png(gradient(16, 16).rgb.data(), 16, 16));
  put(folder / "in/train/a/y/1.png", encode_png(gradient(17, 17).rgb.data(), 17, 17));
  put(folder / "in/train/b/1.jpg", gradient_jpeg(18, 18));
  ConvertOptions convert;
  convert.source = folder / "in";
  convert.target = folder / "records";
  convert_to_tfrecord(convert);
  UnpackOptions options;
  options.source = convert.target;
  options.target = folder / "back";
  const UnpackResult result = unpack_to_folders(options);
  ASSERT_EQ(result.renamed.size(), 1u);
  EXPECT_EQ(result.renamed[0].to, folder / "back/train/a/1-2.png");
  EXPECT_EQ(samples(options.target, Split::train), samples(convert.target, Split::train));
}

void put_tiny_imagenet(const fs::path& in) {
  put(in / "train/n01/images/n01_0.JPEG", gradient_jpeg(64, 64));
  put(in / "train/n01/n01_boxes.txt", std::string("n01_0.JPEG\t0\t10\t63\t58\n"));
  put(in / "train/n02/images/n02_0.JPEG", gradient_jpeg(60, 64));
  put(in / "val/images/val_0.JPEG", gradient_jpeg(61, 64));
  put(in / "val/images/val_1.JPEG", gradient_jpeg(62, 64));
  put(in / "val/val_annotations.txt",
      std::string("val_0.JPEG\tn02\t0\t32\t44\t62\nval_1.JPEG\tn02\t1\t2\t3\t4\n"));
}

TEST(TinyImagenet, TheZipGivesWhatTheFolderGives) {
  const TemporaryFolder folder;
  put_tiny_imagenet(folder / "in/tiny-imagenet-200");
  write_archive(folder / "tiny.zip", ArchiveFormat::zip, files(folder / "in"));
  UnpackOptions options;
  options.source = folder / "in";
  options.target = folder / "from_folder";
  prepare_tiny_imagenet(options);
  options.source = folder / "tiny.zip";
  options.target = folder / "from_zip";
  prepare_tiny_imagenet(options);
  EXPECT_EQ(files(folder / "from_zip"), files(folder / "from_folder"));
  int entries = 0;
  for (const auto& entry : fs::directory_iterator(folder.path())) entries += entry.exists();
  EXPECT_EQ(entries, 4);  // nothing was left beside them
}

TEST(TinyImagenet, AHostileZipWritesNothingOutside) {
  const TemporaryFolder folder;
  const std::vector<std::uint8_t> bytes{'x'};
  for (const char* name : {"../out", "a/../../out", "/tmp/redline-out"}) {
    write_archive(folder / "bad.zip", ArchiveFormat::zip,
                  std::map<std::string, std::vector<std::uint8_t>>{{name, bytes}});
    UnpackOptions options;
    options.source = folder / "bad.zip";
    options.target = folder / "target";
    EXPECT_NE(message_of<DataError>([&] { prepare_tiny_imagenet(options); }).find("inside the archive"),
              std::string::npos)
        << name;
    EXPECT_EQ(files(folder.path()).size(), 1u);
  }
}

// What is not train or val is not even read, however large it says it is; what is no image is not written.
TEST(TinyImagenet, ABombInTheZipIsNotUnpacked) {
  const TemporaryFolder folder;
  put_tiny_imagenet(folder / "in/tiny-imagenet-200");
  auto all = files(folder / "in");
  all["tiny-imagenet-200/test/images/bomb.JPEG"] = std::vector<std::uint8_t>(64 << 20, 0);
  all["tiny-imagenet-200/bomb"] = std::vector<std::uint8_t>(1 << 20, 0);
  all["tiny-imagenet-200/train/n01/images/n01_9.JPEG"] = std::vector<std::uint8_t>(1 << 20, 0);
  write_archive(folder / "tiny.zip", ArchiveFormat::zip, all);
  EXPECT_LT(fs::file_size(folder / "tiny.zip"), 200'000u);
  UnpackOptions options;
  options.source = folder / "tiny.zip";
  options.target = folder / "out";
  const UnpackResult result = prepare_tiny_imagenet(options);
  EXPECT_EQ(result.written, 4);
  ASSERT_EQ(result.bad.size(), 1u);
  EXPECT_TRUE(result.bad[0].name.ends_with("n01_9.JPEG"));
  std::uintmax_t bytes = 0;
  for (const auto& [name, content] : files(folder / "out")) bytes += content.size();
  EXPECT_LT(bytes, 100'000u);
}

TEST(TinyImagenet, TheZipGoesOnWhereItWasStopped) {
  const TemporaryFolder folder;
  put_tiny_imagenet(folder / "in/tiny-imagenet-200");
  write_archive(folder / "tiny.zip", ArchiveFormat::zip, files(folder / "in"));
  UnpackOptions options;
  options.source = folder / "tiny.zip";
  options.target = folder / "out";
  for (std::int64_t stop = 1; stop < 4; ++stop)
    EXPECT_THROW(prepare_tiny_imagenet(options, [&](std::int64_t done, std::int64_t) { return done < stop; }),
                 Stopped);
  const UnpackResult result = prepare_tiny_imagenet(options);
  EXPECT_EQ(result.written + result.found, 4);
  EXPECT_GT(result.found, 0);
  options.target = folder / "whole";
  prepare_tiny_imagenet(options);
  EXPECT_EQ(files(folder / "out"), files(folder / "whole"));
}

TEST(TinyImagenet, ValGoesIntoClassFoldersAndBoxesAreKept) {
  const TemporaryFolder folder;
  const fs::path in = folder / "tiny-imagenet-200";
  put_tiny_imagenet(in);
  UnpackOptions options;
  options.source = folder.path();  // the folder that holds it
  options.target = folder / "out";
  EXPECT_EQ(prepare_tiny_imagenet(options).written, 4);
  const auto out = files(folder / "out");
  const auto text = [&](const char* name) { return std::string(out.at(name).begin(), out.at(name).end()); };
  EXPECT_EQ(out.at("train/n01/n01_0.JPEG"), bytes_of(in / "train/n01/images/n01_0.JPEG"));
  EXPECT_EQ(out.at("val/n02/val_1.JPEG"), bytes_of(in / "val/images/val_1.JPEG"));
  EXPECT_EQ(text("train/n01/n01_boxes.txt"), "n01_0.JPEG\t0\t10\t63\t58\n");
  EXPECT_EQ(text("val/n02/n02_boxes.txt"), "val_0.JPEG\t0\t32\t44\t62\nval_1.JPEG\t1\t2\t3\t4\n");
  EXPECT_EQ(out.size(), 7u);  // with prepare.json
  EXPECT_EQ(samples(folder / "out", Split::val), samples(in, Split::val));
}

}  // namespace
}  // namespace redline::data
