#include "data/prepare/synth.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <map>
#include <set>

#include "base/error.h"
#include "base/temporary_folder.h"
#include "data/pictures.h"
#include "data/prepare/synth_image.h"
#include "data/sources/record_source.h"

namespace redline::data {
namespace {

namespace fs = std::filesystem;

std::map<std::string, std::vector<std::uint8_t>> files_under(const fs::path& root) {
  std::map<std::string, std::vector<std::uint8_t>> files;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(root))
    if (entry.is_regular_file()) files[fs::relative(entry.path(), root).string()] = bytes_of(entry.path());
  return files;
}

SynthOptions small(const fs::path& path) {
  SynthOptions options;
  options.path = path;
  options.classes = 3;
  options.train = 20;
  options.val = 7;
  options.width = options.height = 32;
  options.seed = 9;
  return options;
}

TEST(Synth, TheSameSeedGivesTheSameBytesForAnyNumberOfThreads) {
  const TemporaryFolder folder;
  SynthOptions options = small(folder / "a");
  write_synth(options);
  options.path = folder / "b";
  options.threads = 4;
  write_synth(options);
  EXPECT_EQ(files_under(folder / "a"), files_under(folder / "b"));
  options.path = folder / "c";
  options.seed = 10;
  write_synth(options);
  EXPECT_NE(files_under(folder / "a"), files_under(folder / "c"));
}

TEST(Synth, MakesABalancedImageFolder) {
  const TemporaryFolder folder;
  write_synth(small(folder / "a"));
  const auto train = open_source(folder / "a", Split::train), val = open_source(folder / "a", Split::val);
  EXPECT_EQ(train->count(), 20);
  EXPECT_EQ(val->count(), 7);
  EXPECT_EQ(train->classes(), synth_class_names(3));
  std::map<int, int> counts;
  Decoder decoder;
  FileBytes memory;
  std::set<std::string> distinct;
  for (std::int64_t i = 0; i < train->count(); ++i) {
    ++counts[train->label(i)];
    const auto bytes = train->read(i, memory);
    EXPECT_EQ(decoder.open(bytes).width, 32);
    distinct.insert(std::string(bytes.begin(), bytes.end()));
  }
  for (std::int64_t i = 0; i < val->count(); ++i) {
    const auto bytes = val->read(i, memory);
    distinct.insert(std::string(bytes.begin(), bytes.end()));
  }
  EXPECT_EQ(distinct.size(), 27u);  // no picture twice, and none in both splits
  for (const auto& [label, count] : counts) EXPECT_NEAR(count, 20.0 / 3, 1);
}

// The classes must be told apart by looking. Given the mean colour of each picture, the nearest class mean
// may do no better than guessing: of 600 guesses at 1 in 10, four standard deviations are 29.
TEST(Synth, MeanColourTellsNothing) {
  constexpr int kClasses = 10, kTrain = 1200, kVal = 600;
  const SynthArtist artist(kClasses);
  const auto mean_colour = [&](int number) {
    const std::vector<std::uint8_t> pixels =
        artist.draw(number % kClasses, 32, 32, Random(3, mix(77, static_cast<std::uint64_t>(number))));
    std::array<double, 3> mean{};
    for (std::size_t i = 0; i < pixels.size(); ++i) mean[i % 3] += pixels[i] / 1024.0;
    return mean;
  };
  std::array<std::array<double, 3>, kClasses> centres{};
  for (int i = 0; i < kTrain; ++i) {
    const std::array<double, 3> colour = mean_colour(i);
    for (std::size_t c = 0; c < 3; ++c)
      centres[static_cast<std::size_t>(i % kClasses)][c] += colour[c] * kClasses / kTrain;
  }
  int right = 0;
  for (int i = kTrain; i < kTrain + kVal; ++i) {
    const std::array<double, 3> colour = mean_colour(i);
    int best = 0;
    double least = 1e30;
    for (int k = 0; k < kClasses; ++k) {
      double distance = 0;
      for (std::size_t c = 0; c < 3; ++c)
        distance += std::pow(colour[c] - centres[static_cast<std::size_t>(k)][c], 2);
      if (distance < least) least = distance, best = k;
    }
    right += best == i % kClasses;
  }
  EXPECT_LE(right, kVal / kClasses + 29);
}

TEST(Synth, ManyClassesHaveDistinctSortedNames) {
  const std::vector<std::string> names = synth_class_names(1000);
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), 1000u);
  EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
  EXPECT_GE(max_synth_classes(), 1000);
  EXPECT_EQ(SynthArtist(1000).draw(999, 40, 30, Random(1)).size(), 40u * 30 * 3);
}

TEST(Synth, LeavesNothingWhenStopped) {
  const TemporaryFolder folder;
  EXPECT_THROW(write_synth(small(folder / "a"), [](std::int64_t done, std::int64_t) { return done < 5; }),
               Stopped);
  EXPECT_EQ(folder.entries(), 0);
}

TEST(Synth, RefusesWhatCannotBe) {
  const TemporaryFolder folder;
  const auto with = [&](auto change) {
    SynthOptions options = small(folder / "a");
    change(options);
    write_synth(options);
  };
  EXPECT_THROW(with([](auto& o) { o.classes = 1; }), UsageError);
  EXPECT_THROW(with([](auto& o) { o.classes = 100000; }), UsageError);
  EXPECT_THROW(with([](auto& o) { o.train = 2; }), UsageError);
  EXPECT_THROW(with([](auto& o) { o.val = 1; }), UsageError);
  EXPECT_THROW(with([](auto& o) { o.width = 8; }), UsageError);
  EXPECT_THROW(with([](auto& o) { o.quality = 0; }), UsageError);
  EXPECT_EQ(folder.entries(), 0);
  write_synth(small(folder / "a"));
  EXPECT_THROW(write_synth(small(folder / "a")), UsageError);
}

}  // namespace
}  // namespace redline::data
