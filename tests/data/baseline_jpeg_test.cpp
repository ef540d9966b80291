#include "data/images/baseline_jpeg.h"

#include <gtest/gtest.h>

#include <numeric>

#include "base/error.h"
#include "data/images/resize.h"
#include "data/pictures.h"

namespace redline::data {
namespace {

std::vector<std::uint8_t> seed_of(const std::string& name) {
  return bytes_of(std::filesystem::path(REDLINE_CORPUS) / "image" / name);
}

// Planes to RGB at the size they have.
Picture merged(const Planes& planes, int width, int height) {
  Picture out{width, height, std::vector<std::uint8_t>(static_cast<std::size_t>(width * height * 3))};
  Resizer resizer;
  resizer.resize(planes, {0, 0, double(width), double(height)}, width, height, Interpolation::bilinear, false,
                 out.rgb.data());
  return out;
}

struct Opened {
  BaselineJpeg reader;
  ImageInfo info;
  Planes planes;

  explicit Opened(const std::vector<std::uint8_t>& bytes, const Kernels& with = kernels()) {
    EXPECT_TRUE(reader.open(bytes, info));
    EXPECT_TRUE(reader.decode({0, 0, info.width, info.height}, 1, planes, with));
  }
};

std::vector<std::uint8_t> pixels_of_plane(const Plane& plane) {
  std::vector<std::uint8_t> pixels;
  for (int y = 0; y < plane.height; ++y)
    pixels.insert(pixels.end(), plane.data + y * plane.stride, plane.data + y * plane.stride + plane.width);
  return pixels;
}

// Grey needs no colours and no upsampling: every pixel is libjpeg's.
TEST(BaselineJpeg, GreyIsLibjpegsToTheBit) {
  const std::vector<std::uint8_t> bytes = bytes_of(golden("grey.jpg"));
  const Opened jpeg(bytes);
  EXPECT_EQ(jpeg.planes.count, 1);
  EXPECT_EQ(merged(jpeg.planes, jpeg.info.width, jpeg.info.height).rgb, decoded(bytes).rgb);
}

// Noise at the highest quality: values of up to ten bits, codes longer than what is looked up at once, and
// blocks that are full to their last place. It is grey, so that every pixel is libjpeg's; a part of it is
// read after passing over the rest.
TEST(BaselineJpeg, LongCodesAreLibjpegsToTheBit) {
  Picture noise{150, 90, {}};
  Random random(3, 0);
  for (int i = 0; i < 150 * 90; ++i)
    noise.rgb.insert(noise.rgb.end(), 3, static_cast<std::uint8_t>(random.below(2) * 255));
  for (const int quality : {100, 97, 60}) {
    const std::vector<std::uint8_t> bytes = encode_jpeg(noise.rgb.data(), 150, 90, quality);
    const Opened jpeg(bytes);
    const Picture theirs = decoded(bytes);
    EXPECT_EQ(merged(jpeg.planes, 150, 90).rgb, theirs.rgb) << quality;
    Opened part(bytes);
    ASSERT_TRUE(part.reader.decode({70, 50, 30, 20}, 1, part.planes));
    const Plane& plane = part.planes.plane[0];
    for (int y = 0; y < plane.height; ++y)
      for (int x = 0; x < plane.width; ++x)
        ASSERT_EQ(plane.data[y * plane.stride + x],
                  theirs.rgb[static_cast<std::size_t>(((y + plane.origin_y) * 150 + x + plane.origin_x) * 3)])
            << quality;
  }
}

// Colours at full resolution differ by the rounding of their conversion; at half resolution also by how they
// are spread over the pixels, which on these noisy pictures is worth a level or two.
TEST(BaselineJpeg, ColoursAreLibjpegs) {
  struct Case {
    const char* file;
    double mean;
  };
  for (const auto& [file, mean] : {Case{"444.jpg", 0.3}, {"422.jpg", 2.0}, {"420.jpg", 2.0}}) {
    const std::vector<std::uint8_t> bytes = bytes_of(golden(file));
    const Opened jpeg(bytes);
    const Difference difference =
        compare(merged(jpeg.planes, jpeg.info.width, jpeg.info.height).rgb, decoded(bytes).rgb);
    EXPECT_LE(difference.mean, mean) << file;
  }
  const std::vector<std::uint8_t> smooth = gradient_jpeg(200, 150);
  const Opened jpeg(smooth);
  EXPECT_LE(compare(merged(jpeg.planes, 200, 150).rgb, decoded(smooth).rgb).mean, 0.6);
}

// The same picture with a restart after every block and without.
TEST(BaselineJpeg, RestartsAreFollowed) {
  const std::vector<std::uint8_t> with = seed_of("restarts.jpg"), without = seed_of("420.jpg");
  ASSERT_NE(with, without);
  const Opened a(with), b(without);
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(pixels_of_plane(a.planes.plane[i]), pixels_of_plane(b.planes.plane[i]));
}

TEST(BaselineJpeg, ARegionIsThatPartOfTheWhole) {
  const std::vector<std::uint8_t> bytes = gradient_jpeg(173, 131);
  Opened whole(bytes), part(bytes);
  for (const Rect region : {Rect{0, 0, 1, 1}, {172, 130, 1, 1}, {40, 33, 60, 50}, {16, 16, 16, 16}}) {
    ASSERT_TRUE(part.reader.decode(region, 1, part.planes));
    for (int i = 0; i < 3; ++i) {
      const Plane &a = whole.planes.plane[i], &b = part.planes.plane[i];
      for (int y = 0; y < b.height; ++y)
        for (int x = 0; x < b.width; ++x)
          ASSERT_EQ(b.data[y * b.stride + x], a.data[(y + b.origin_y) * a.stride + x + b.origin_x]);
      const Box box =
          b.map({double(region.x), double(region.y), double(region.width), double(region.height)});
      EXPECT_GE(box.x, 0);
      EXPECT_LE(box.x + box.width, b.width + 0.5);
      EXPECT_GE(box.y, 0);
      EXPECT_LE(box.y + box.height, b.height + 0.5);
    }
  }
}

// A shrunk image is the mean of what it stands for, up to what the missing frequencies make of it.
TEST(BaselineJpeg, ShrinkingKeepsThePicture) {
  const Picture picture = gradient(160, 128, 0.02);
  const std::vector<std::uint8_t> bytes = encode_jpeg(picture.rgb.data(), 160, 128, 95);
  Opened full(bytes), small(bytes);
  for (const int shrink : {2, 4, 8}) {
    ASSERT_TRUE(small.reader.decode({0, 0, 160, 128}, shrink, small.planes));
    EXPECT_LE(small.planes.plane[1].step_x, std::max(2, shrink))
        << "colours need no less than brightness has";
    const Plane &a = full.planes.plane[0], &b = small.planes.plane[0];
    ASSERT_EQ(b.width, 160 / shrink);
    ASSERT_EQ(b.height, 128 / shrink);
    double off = 0;
    for (int y = 0; y < b.height; ++y)
      for (int x = 0; x < b.width; ++x) {
        int sum = 0;
        for (int v = 0; v < shrink; ++v)
          for (int u = 0; u < shrink; ++u) sum += a.data[(y * shrink + v) * a.stride + x * shrink + u];
        off += std::abs(b.data[y * b.stride + x] - double(sum) / (shrink * shrink));
      }
    EXPECT_LE(off / (b.width * b.height), 0.6) << shrink;
  }
}

TEST(BaselineJpeg, EveryInstructionSetGivesTheSameBits) {
  if (!__builtin_cpu_supports("avx2")) GTEST_SKIP() << "this machine has only one";
  for (const char* file : {"420.jpg", "422.jpg", "444.jpg", "grey.jpg"}) {
    const std::vector<std::uint8_t> bytes = bytes_of(golden(file));
    const Opened a(bytes, v2::kKernels), b(bytes, v3::kKernels);
    for (int i = 0; i < a.planes.count; ++i)
      EXPECT_EQ(pixels_of_plane(a.planes.plane[i]), pixels_of_plane(b.planes.plane[i])) << file;
  }
}

// What it does not take goes to libjpeg, which decodes it or says why not.
TEST(BaselineJpeg, UnusualFilesAreLeftAlone) {
  BaselineJpeg reader;
  ImageInfo info;
  for (const char* file : {"progressive.jpg", "cmyk.jpg", "alpha.png"})
    EXPECT_FALSE(reader.open(bytes_of(golden(file)), info)) << file;
  for (const char* file : {"cut_in_scan.jpg", "no_end_marker.jpg", "twelve_bits.jpg", "arithmetic.jpg",
                           "crowded_codes.jpg", "empty"})
    EXPECT_FALSE(reader.open(seed_of(file), info)) << file;
}

TEST(BaselineJpeg, DamageIsNoticedAndLeftToLibjpeg) {
  for (const char* file : {"end_marker_early.jpg", "scan_of_ones.jpg"}) {
    Decoder decoder;
    const std::vector<std::uint8_t> bytes = seed_of(file);
    const ImageInfo info = decoder.open(bytes);
    Planes planes;
    EXPECT_FALSE(decoder.decode_planes({0, 0, info.width, info.height}, 1, planes)) << file;
    try {
      decoder.decode();
      EXPECT_FALSE(decoder.warning().empty()) << file;
    } catch (const DataError&) {
    }
  }
}

}  // namespace
}  // namespace redline::data
