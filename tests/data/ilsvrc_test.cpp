#include "data/sources/ilsvrc.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/machine.h"
#include "base/temporary_folder.h"
#include "data/pictures.h"
#include "data/prepare/synth.h"
#include "data/progress.h"
#include "data/sources/devkit.h"
#include "data/sources/tar.h"

namespace redline::data {
namespace {

namespace fs = std::filesystem;

SynthOptions synth(const fs::path& path, SynthFormat format) {
  SynthOptions options;
  options.path = path;
  options.format = format;
  options.classes = 5;
  options.train = 23;
  options.val = 11;
  options.width = options.height = 20;
  options.train_shards = 3;
  options.threads = 2;
  return options;
}

std::vector<std::pair<std::string, std::vector<std::uint8_t>>> samples(const fs::path& path, Split split) {
  const auto source = open_source(path, split);
  std::vector<std::pair<std::string, std::vector<std::uint8_t>>> all;
  FileBytes memory;
  for (std::int64_t i = 0; i < source->count(); ++i) {
    const auto bytes = source->read(i, memory);
    all.emplace_back(source->classes()[static_cast<std::size_t>(source->label(i))],
                     std::vector<std::uint8_t>(bytes.begin(), bytes.end()));
  }
  return all;
}

std::vector<std::uint8_t> tar_of(
    const std::vector<std::pair<std::string, std::vector<std::uint8_t>>>& files) {
  std::vector<std::uint8_t> tar;
  for (const auto& [name, content] : files) {
    const std::vector<std::uint8_t> header = tar_header(name, content.size());
    tar.insert(tar.end(), header.begin(), header.end());
    tar.insert(tar.end(), content.begin(), content.end());
    tar.insert(tar.end(), tar_padding(content.size()), 0);
  }
  tar.insert(tar.end(), kTarEnd, 0);
  return tar;
}

TEST(Ilsvrc, TheTarsHoldWhatTheFoldersHold) {
  const TemporaryFolder folder;
  write_synth(synth(folder / "tars", SynthFormat::tars));
  write_synth(synth(folder / "folders", SynthFormat::folders));
  write_synth(synth(folder / "records", SynthFormat::tfrecord));
  // Train has the same order in both, so that a seed gives the same batches.
  EXPECT_EQ(samples(folder / "tars", Split::train), samples(folder / "folders", Split::train));
  for (const Split split : {Split::train, Split::val}) {
    auto expected = samples(folder / "folders", split);
    std::sort(expected.begin(), expected.end());
    for (const char* name : {"tars", "records"}) {
      auto found = samples(folder / name, split);
      std::sort(found.begin(), found.end());
      EXPECT_EQ(found, expected) << name << " " << split_name(split);
    }
  }
  EXPECT_EQ(open_source(folder / "tars", Split::val)->kind(), std::string("ILSVRC tar"));
}

TEST(Ilsvrc, TheSecondOpeningReadsTheIndexAlone) {
  const TemporaryFolder folder;
  write_synth(synth(folder / "tars", SynthFormat::tars));
  const auto first = samples(folder / "tars", Split::val);
  ASSERT_TRUE(fs::exists(folder / "tars/.redline-index-val"));
  EXPECT_EQ(samples(folder / "tars", Split::val), first);
  // Another kit gives other labels: the index must not be believed.
  Devkit kit = read_devkit(folder / "tars" / kIlsvrcDevkit);
  std::fill(kit.ground_truth.begin(), kit.ground_truth.end(), 1);
  fs::remove(folder / "tars" / kIlsvrcDevkit);
  write_whole(folder / "tars" / kIlsvrcDevkit, serialize_devkit(kit));
  EXPECT_NE(samples(folder / "tars", Split::val), first);
}

TEST(Ilsvrc, ValWithoutTrainHasTheKitsClasses) {
  const TemporaryFolder folder;
  write_synth(synth(folder / "tars", SynthFormat::tars));
  const auto classes = open_source(folder / "tars", Split::val)->classes();
  const auto before = samples(folder / "tars", Split::val);
  fs::remove(folder / "tars" / kIlsvrcTrain);
  EXPECT_FALSE(has_split(folder / "tars", Split::train));
  EXPECT_EQ(open_source(folder / "tars", Split::val)->classes(), classes);
  EXPECT_EQ(samples(folder / "tars", Split::val), before);
  EXPECT_THROW(open_source(folder / "tars", Split::train), UsageError);
  fs::remove(folder / "tars" / kIlsvrcDevkit);
  EXPECT_NE(message_of<UsageError>([&] { open_source(folder / "tars", Split::val); }).find(kIlsvrcDevkit),
            std::string::npos);
}

TEST(Ilsvrc, DamagedTarsAreNamed) {
  const TemporaryFolder folder;
  const std::vector<std::uint8_t> jpeg = gradient_jpeg(16, 16);
  const auto complaint = [&](const std::vector<std::uint8_t>& tar) {
    fs::remove(folder / kIlsvrcTrain);
    write_whole(folder / kIlsvrcTrain, tar);
    return message_of<DataError>([&] { open_source(folder.path(), Split::train); });
  };
  const std::vector<std::uint8_t> good = tar_of({{"a_1.JPEG", jpeg}});
  std::vector<std::uint8_t> cut = tar_of({{"a.tar", good}, {"b.tar", good}});
  cut.resize(cut.size() - 3000);
  EXPECT_NE(complaint(cut).find("cut off"), std::string::npos) << complaint(cut);
  EXPECT_NE(complaint(tar_of({{"a.tar", good}, {"a.tar", good}})).find("a.tar twice"), std::string::npos);
  EXPECT_NE(complaint(tar_of({{"a.tar", tar_of({{"x.JPEG", jpeg}, {"x.JPEG", jpeg}})}})).find("twice"),
            std::string::npos);
  EXPECT_NE(complaint(tar_of({{"a.tar", tar_of({{"../x.JPEG", jpeg}})}})).find("inside the archive"),
            std::string::npos);
  EXPECT_NE(complaint(tar_of({{"a.tar", tar_of({{"readme", jpeg}})}})).find("a.tar holds no images"),
            std::string::npos);
  EXPECT_NE(complaint(tar_of({{"readme", jpeg}})).find("holds no tars"), std::string::npos);
}

TEST(Ilsvrc, IndexingEndsWhenAskedTo) {
  const TemporaryFolder folder;
  write_synth(synth(folder / "tars", SynthFormat::tars));
  for (const Split split : {Split::train, Split::val}) {
    int asked = 0;
    SourceOptions options;
    options.stop = [&] { return ++asked >= 8; };  // in the middle of a tar
    EXPECT_THROW(open_source(folder / "tars", split, options), Stopped) << split_name(split);
    EXPECT_GE(asked, 8);
    EXPECT_LT(asked, 8 + inspect_machine().cores_allowed) << "each other thread may ask once more";
  }
}

TEST(Ilsvrc, ValImagesThatTheKitDoesNotKnowAreNamed) {
  const TemporaryFolder folder;
  write_synth(synth(folder / "tars", SynthFormat::tars));
  const fs::path tars = folder / "tars";
  Devkit kit = read_devkit(tars / kIlsvrcDevkit);
  kit.ground_truth.pop_back();
  fs::remove(tars / kIlsvrcDevkit);
  write_whole(tars / kIlsvrcDevkit, serialize_devkit(kit));
  EXPECT_NE(
      message_of<DataError>([&] { open_source(tars, Split::val); }).find("ILSVRC2012_val_00000011.JPEG"),
      std::string::npos);
}

TEST(Ilsvrc, ValNumbersComeFromPlainNamesAlone) {
  EXPECT_EQ(ilsvrc_val_number("ILSVRC2012_val_00000001.JPEG"), 1);
  EXPECT_EQ(ilsvrc_val_number("ILSVRC2012_val_00050000.JPEG"), 50000);
  for (const char* name : {"ILSVRC2012_val_.JPEG", "ILSVRC2012_val_00000000.JPEG", "ILSVRC2012_val_-1.JPEG",
                           "ILSVRC2012_val_1x.JPEG", "ILSVRC2012_val_00000001.txt", "n01.JPEG", ""})
    EXPECT_EQ(ilsvrc_val_number(name), 0) << name;
}

TEST(SynthSizes, ImagenetLikeSizesAreMixedAndLarge) {
  const TemporaryFolder folder;
  SynthOptions options = synth(folder / "big", SynthFormat::folders);
  options.imagenet_sizes = true;
  options.quality = 95;
  write_synth(options);
  std::map<std::pair<int, int>, int> sizes;
  double bytes = 0;
  Decoder decoder;
  const auto all = samples(folder / "big", Split::train);
  for (const auto& [name, jpeg] : all) {
    const ImageInfo info = decoder.open(jpeg);
    ++sizes[{info.width, info.height}];
    bytes += static_cast<double>(jpeg.size()) / static_cast<double>(all.size());
  }
  EXPECT_GE(sizes.size(), 4u);
  EXPECT_GT((sizes[{500, 375}]), 5);
  // 98 KiB on average over many classes; these five are plainer.
  EXPECT_GT(bytes, 75 * 1024);
  EXPECT_LT(bytes, 115 * 1024);
}

}  // namespace
}  // namespace redline::data
