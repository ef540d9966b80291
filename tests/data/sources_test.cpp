// The same data set as class folders, ImageNet's tars, TFRecords and Tiny ImageNet's layout: what reaches the
// trainer is the same.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include "base/atomic_file.h"
#include "base/temporary_folder.h"
#include "data/loader.h"
#include "data/pictures.h"
#include "data/prepare/synth.h"
#include "data/prepare/verify.h"
#include "data/sources/record_source.h"

namespace redline::data {
namespace {

namespace fs = std::filesystem;

constexpr int kSize = 24;

// Decoded images of one pass, each with the name of its class.
using Samples = std::multiset<std::pair<std::string, std::vector<std::uint8_t>>>;

class Sources : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::make_unique<TemporaryFolder>();
    for (const auto& [name, format] : {std::pair{"folders", SynthFormat::folders},
                                       {"tars", SynthFormat::tars},
                                       {"tfrecord", SynthFormat::tfrecord}}) {
      SynthOptions options;
      options.path = *folder_ / name;
      options.format = format;
      options.classes = 4;
      options.train = 48;
      options.val = 14;
      options.width = 60;
      options.height = 40;
      options.train_shards = 3;
      write_synth(options);
    }
    make_tiny(*folder_ / "folders", *folder_ / "tiny");
  }
  static void TearDownTestSuite() { folder_.reset(); }

  // Train's images in folders of folders, val's in one with a list.
  static void make_tiny(const fs::path& from, const fs::path& to) {
    std::string list;
    fs::create_directories(to / "val/images");
    for (const auto& entry : fs::directory_iterator(from / "train")) {
      const std::string name = entry.path().filename().string();
      fs::create_directories(to / "train" / name);
      fs::copy(entry.path(), to / "train" / name / "images");
      for (const auto& image : fs::directory_iterator(from / "val" / name)) {
        const std::string file = name + "_" + image.path().filename().string();
        fs::copy(image.path(), to / "val/images" / file);
        list += file + "\t" + name + "\t0\t0\t9\t9\n";
      }
    }
    write_file_atomically(to / "val/val_annotations.txt", list);
  }

  static std::shared_ptr<const RecordSource> open(const char* name, Split split) {
    return open_source(*folder_ / name, split);
  }

  static Samples pass(const char* name, bool train,
                      std::vector<std::vector<std::uint8_t>>* in_order = nullptr) {
    LoaderOptions options;
    options.batch_size = 4;
    options.threads = 2;
    options.seed = 5;
    options.transform.train = train;
    options.transform.size = kSize;
    // Crops depend on the sample's number, and numbers on the source: the whole image for all.
    options.transform.scale_min = options.transform.scale_max = 1;
    options.transform.ratio_min = options.transform.ratio_max = 1.5;
    options.transform.flip = 0;
    const auto source = open(name, train ? Split::train : Split::val);
    Loader loader(source, options);
    loader.start_epoch(0);
    Samples samples;
    for (Batch batch; loader.next(batch);)
      for (int row = 0; row < options.batch_size; ++row) {
        if (batch.labels[row] < 0) continue;
        const std::uint8_t* image = batch.images + std::ptrdiff_t{row} * kSize * kSize * 3;
        std::vector<std::uint8_t> pixels(image, image + kSize * kSize * 3);
        if (in_order) in_order->push_back(pixels);
        samples.emplace(source->classes()[static_cast<std::size_t>(batch.labels[row])], std::move(pixels));
      }
    return samples;
  }

  static std::unique_ptr<TemporaryFolder> folder_;
};

std::unique_ptr<TemporaryFolder> Sources::folder_;

TEST_F(Sources, HaveTheSameClassesAndNothingBad) {
  const auto classes = open("folders", Split::train)->classes();
  for (const char* name : {"folders", "tars", "tfrecord", "tiny"}) {
    EXPECT_EQ(open(name, Split::train)->classes(), classes) << name;
    EXPECT_EQ(open(name, Split::val)->classes(), classes) << name;
    const Verification result = verify(*folder_ / name, {});
    EXPECT_EQ(result.images(), 62) << name;
    EXPECT_EQ(result.bad(), 0) << name;
  }
}

TEST_F(Sources, GiveTheSameImagesWithTheSameLabels) {
  for (const bool train : {true, false}) {
    const Samples wanted = pass("folders", train);
    EXPECT_EQ(wanted.size(), train ? 48u : 14u);
    EXPECT_GT(std::set(wanted.begin(), wanted.end()).size(), wanted.size() / 2) << "pictures should differ";
    for (const char* name : {"tars", "tfrecord", "tiny"}) EXPECT_EQ(pass(name, train), wanted) << name;
  }
}

// Where samples are numbered alike, by class and then by name, even the order is the same.
TEST_F(Sources, ThatNumberAlikeGiveTheSameBatches) {
  std::vector<std::vector<std::uint8_t>> folders, tiny;
  pass("folders", true, &folders);
  pass("tiny", true, &tiny);
  EXPECT_EQ(tiny, folders);
}

}  // namespace
}  // namespace redline::data
