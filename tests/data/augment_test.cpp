#include "data/images/augment.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <sstream>

#include "base/error.h"
#include "data/moments.h"
#include "data/pictures.h"

namespace redline::data {
namespace {

// The golden files are Resize and CenterCrop of torchvision on Pillow images: the same arithmetic up to
// rounding, once in the decoder and once in the resizer.
TEST(Augment, EvaluationMatchesTorchvision) {
  std::ifstream cases(golden("eval.txt"));
  std::string image, filter, expected;
  int size = 0, seen = 0;
  while (cases >> image >> size >> filter >> expected) {
    TransformOptions options;
    options.train = false;
    options.size = size;
    options.filter = filter == "bicubic" ? Interpolation::bicubic : Interpolation::bilinear;
    Transform transform(options, {});
    std::vector<std::uint8_t> out(static_cast<std::size_t>(size * size * 3));
    const std::vector<std::uint8_t> bytes = bytes_of(golden(image));
    transform.run(bytes, Random(0), out.data());
    const Difference difference = compare(out, decoded(bytes_of(golden(expected))).rgb);
    EXPECT_LE(difference.mean, 0.5) << expected;
    EXPECT_LE(difference.most, 2) << expected;
    ++seen;
  }
  EXPECT_EQ(seen, 4);
}

TEST(Augment, CropsAreDistributedAsTorchvisionDrawsThem) {
  std::ifstream table(golden("crops.txt"));
  std::string line;
  int seen = 0;
  while (std::getline(table, line)) {
    if (line.front() == '#') continue;
    std::istringstream fields(line);
    int width = 0, height = 0;
    TransformOptions options;
    fields >> width >> height >> options.scale_min >> options.scale_max;
    RegionMoments moments;
    Random random(11, static_cast<std::uint64_t>(seen));
    for (int i = 0; i < 20000; ++i) {
      const Rect r = random_crop(options, width, height, random).region;
      moments.add(r, width, height, std::log(double(r.width) / r.height));
    }
    moments.expect_like(fields, line);
    ++seen;
  }
  EXPECT_EQ(seen, 3);
}

TEST(Augment, HalfOfTheCropsAreFlipped) {
  TransformOptions options;
  int flips = 0;
  for (int i = 0; i < 4000; ++i) {
    Random random = sample_random(1, 2, i);
    flips += random_crop(options, 100, 100, random).flip;
  }
  EXPECT_NEAR(flips, 2000, 4 * std::sqrt(1000.0));
}

TEST(Augment, ASampleAndEpochDecideTheResult) {
  TransformOptions options;
  options.size = 32;
  const std::vector<std::uint8_t> bytes = gradient_jpeg(120, 90);
  const auto row = [&](std::uint64_t seed, std::int64_t epoch, std::int64_t sample) {
    Transform transform(options, {});
    std::vector<std::uint8_t> out(32 * 32 * 3);
    transform.run(bytes, sample_random(seed, epoch, sample), out.data());
    return out;
  };
  const std::vector<std::uint8_t> first = row(1, 2, 3);
  EXPECT_EQ(row(1, 2, 3), first);
  EXPECT_NE(row(2, 2, 3), first);
  EXPECT_NE(row(1, 3, 3), first);
  EXPECT_NE(row(1, 2, 4), first);
}

// Shrinking inside the JPEG decoder is a shortcut, not another transform: on a smooth picture nothing
// changes.
TEST(Augment, ShrinkOnDecodeKeepsThePicture) {
  const Picture picture = gradient(400, 300, 0.02);
  const std::vector<std::uint8_t> bytes = encode_jpeg(picture.rgb.data(), 400, 300, 95);
  TransformOptions options;
  options.size = 32;
  options.scale_min = 0.5;
  TransformOptions plain = options;
  plain.shortcuts = false;
  Transform fast(options, {}), slow(plain, {});
  for (int i = 0; i < 20; ++i) {
    std::vector<std::uint8_t> a(32 * 32 * 3), b(a.size());
    fast.run(bytes, sample_random(0, 0, i), a.data());
    slow.run(bytes, sample_random(0, 0, i), b.data());
    EXPECT_LE(compare(a, b).mean, 1.5);
  }
}

TEST(Augment, TinyAndNarrowImagesWork) {
  for (const auto& [width, height] : {std::pair{1, 1}, {1, 300}, {300, 1}, {2, 3}, {17, 1000}}) {
    const std::vector<std::uint8_t> bytes = gradient_jpeg(width, height);
    for (const bool train : {true, false}) {
      TransformOptions options;
      options.train = train;
      options.size = 24;
      Transform transform(options, {});
      std::vector<std::uint8_t> out(24 * 24 * 3);
      for (int i = 0; i < 5; ++i) transform.run(bytes, sample_random(0, 0, i), out.data());
    }
  }
}

TEST(Augment, ImpossibleOptionsAreNamed) {
  const auto message = [](auto change) {
    TransformOptions options;
    change(options);
    return message_of<UsageError>([&] { validate(options); });
  };
  EXPECT_NE(message([](auto& o) { o.size = 0; }).find("--image-size 0"), std::string::npos);
  EXPECT_NE(message([](auto& o) { o.scale_min = 0; }).find("area"), std::string::npos);
  EXPECT_NE(message([](auto& o) { o.scale_min = 0.9, o.scale_max = 0.5; }).find("area"), std::string::npos);
  EXPECT_NE(message([](auto& o) { o.ratio_max = 0.1; }).find("ratio"), std::string::npos);
  EXPECT_NE(message([](auto& o) { o.flip = 2; }).find("flip"), std::string::npos);
  EXPECT_NE(message([](auto& o) { o.centre = 0; }).find("centre"), std::string::npos);
}

}  // namespace
}  // namespace redline::data
