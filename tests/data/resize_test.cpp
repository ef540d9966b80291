#include "data/images/resize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <numeric>

#include "base/error.h"
#include "data/images/kernels/kernels.h"
#include "data/images/pillow_resize.h"
#include "data/pictures.h"

namespace redline::data {
namespace {

Picture resized(const Picture& source, const Rect& region, int width, int height, Interpolation filter,
                bool flip = false) {
  Picture out{width, height, std::vector<std::uint8_t>(static_cast<std::size_t>(width * height * 3))};
  Resizer resizer;
  const Box box{double(region.x), double(region.y), double(region.width), double(region.height)};
  resizer.resize(view_of(source), box, region, width, height, filter, flip, out.rgb.data());
  return out;
}

struct PillowCase {
  Interpolation filter;
  Rect box;
  std::string file;
  Picture resized;
};

// Parts of source.png that Pillow resized.
std::vector<PillowCase> pillow_cases() {
  std::vector<PillowCase> found;
  std::ifstream cases(golden("resize.txt"));
  std::string filter, file;
  Rect box;
  int width = 0, height = 0;
  while (cases >> filter >> box.x >> box.y >> box.width >> box.height >> width >> height >> file)
    found.push_back({filter == "bicubic" ? Interpolation::bicubic : Interpolation::bilinear, box, file,
                     decoded(bytes_of(golden(file)))});
  return found;
}

// To the bit, and so is every part of it.
TEST(PillowResize, IsPillows) {
  const Picture source = decoded(bytes_of(golden("source.png")));
  const std::vector<PillowCase> cases = pillow_cases();
  ASSERT_EQ(cases.size(), 9U);
  PillowResizer resizer;
  for (const auto& [filter, box, file, theirs] : cases) {
    Pixels pixels = view_of(source);
    pixels.data += box.y * pixels.stride + box.x * 3;
    pixels.width = box.width;
    pixels.height = box.height;
    const int width = theirs.width, height = theirs.height;
    for (const Rect& part :
         {Rect{0, 0, width, height}, Rect{width / 3, height / 2, std::max(1, width / 2), height / 4 + 1}}) {
      std::vector<std::uint8_t> ours(static_cast<std::size_t>(part.width * part.height * 3)), wanted;
      resizer.resize(pixels, box.width, box.height, {width, height, part}, filter, ours.data());
      for (int y = part.y; y < part.y + part.height; ++y) {
        const auto row = theirs.rgb.begin() + (y * width + part.x) * 3;
        wanted.insert(wanted.end(), row, row + part.width * 3);
      }
      EXPECT_EQ(ours, wanted) << file;
    }
  }
}

// Pillow rounds to whole levels between its passes and this does not: a level apart here and there. It also
// cuts off there what bicubic overshoots on noise like this picture's, which shows in single pixels.
TEST(Resize, MatchesPillow) {
  const Picture source = decoded(bytes_of(golden("source.png")));
  for (const auto& [filter, box, file, theirs] : pillow_cases()) {
    const Picture ours = resized(source, box, theirs.width, theirs.height, filter);
    const Difference difference = compare(ours.rgb, theirs.rgb);
    EXPECT_LE(difference.mean, filter == Interpolation::bicubic ? 1.0 : 0.3) << file;
    if (filter == Interpolation::bilinear) {
      EXPECT_LE(difference.most, 1) << file;
    }
  }
}

// Of crops at fractions of a pixel, from a tenth of the size to ten times it.
TEST(Resize, WeightsAddUpAndAreTheSameOnEveryMachine) {
  const bool both = __builtin_cpu_supports("avx2");
  for (const Interpolation filter : {Interpolation::bilinear, Interpolation::bicubic})
    for (int i = 0; i < 200; ++i) {
      Random random(1, static_cast<std::uint64_t>(i));
      AxisPlan plan;
      plan.start = 40 * random.uniform();
      plan.length = 5 + 600 * random.uniform();
      plan.clip_begin = static_cast<int>(plan.start);
      plan.clip_end = static_cast<int>(plan.start + plan.length) + 1;
      plan.outputs = 1 + static_cast<int>(random.below(70));
      plan.filter = filter;
      plan.taps = 4 * (2 + static_cast<int>(plan.length / plan.outputs));
      const auto outputs = static_cast<std::size_t>(plan.outputs), taps = static_cast<std::size_t>(plan.taps);
      std::vector<double> scratch(taps * kPlanLanes);
      std::vector<int> first(outputs), other_first(outputs);
      std::vector<std::int16_t> weights(outputs * taps), other_weights(outputs * taps);
      v2::kKernels.plan_axis(plan, scratch.data(), first.data(), weights.data());
      for (std::size_t k = 0; k < outputs; ++k) {
        EXPECT_EQ(std::accumulate(weights.begin() + static_cast<std::ptrdiff_t>(k * taps),
                                  weights.begin() + static_cast<std::ptrdiff_t>((k + 1) * taps), 0),
                  1 << kWeightBits);
        EXPECT_GE(first[k], plan.clip_begin);
        EXPECT_LT(first[k], plan.clip_end);
      }
      if (!both) continue;
      v3::kKernels.plan_axis(plan, scratch.data(), other_first.data(), other_weights.data());
      EXPECT_EQ(first, other_first);
      EXPECT_EQ(weights, other_weights);
    }
}

TEST(Resize, SameSizeIsACopy) {
  const Picture source = gradient(40, 23);
  EXPECT_EQ(resized(source, {0, 0, 40, 23}, 40, 23, Interpolation::bilinear).rgb, source.rgb);
}

TEST(Resize, FlatStaysFlatAtEveryScale) {
  for (const int level : {0, 1, 127, 254, 255}) {
    const Picture source{300, 200,
                         std::vector<std::uint8_t>(300 * 200 * 3, static_cast<std::uint8_t>(level))};
    for (const int size : {1, 3, 10, 64, 333})
      for (const Interpolation filter : {Interpolation::bilinear, Interpolation::bicubic})
        for (const std::uint8_t value : resized(source, {0, 0, 300, 200}, size, size, filter).rgb)
          ASSERT_EQ(value, level) << size;
  }
}

TEST(Resize, FlipMirrors) {
  const Picture source = gradient(50, 40);
  const Picture plain = resized(source, {3, 4, 30, 30}, 17, 9, Interpolation::bilinear);
  const Picture mirrored = resized(source, {3, 4, 30, 30}, 17, 9, Interpolation::bilinear, true);
  for (int y = 0; y < 9; ++y)
    for (int x = 0; x < 17; ++x)
      for (int c = 0; c < 3; ++c)
        ASSERT_EQ(mirrored.rgb[static_cast<std::size_t>((y * 17 + x) * 3 + c)],
                  plain.rgb[static_cast<std::size_t>((y * 17 + 16 - x) * 3 + c)]);
}

// "Resize, then crop" equals resizing only the box, as long as the filter may look around it.
TEST(Resize, ABoxOfAWholeEqualsThatPartOfTheResizedWhole) {
  const Picture source = gradient(90, 60);
  const Picture whole = resized(source, {0, 0, 90, 60}, 45, 30, Interpolation::bilinear);
  Picture part{10, 10, std::vector<std::uint8_t>(300)};
  Resizer resizer;
  resizer.resize(view_of(source), {20, 10, 20, 20}, {0, 0, 90, 60}, 10, 10, Interpolation::bilinear, false,
                 part.rgb.data());
  for (int y = 0; y < 10; ++y)
    for (int x = 0; x < 30; ++x)
      ASSERT_EQ(part.rgb[static_cast<std::size_t>(y * 30 + x)],
                whole.rgb[static_cast<std::size_t>((y + 5) * 135 + 30 + x)]);
}

TEST(Resize, RefusesAClipOutsideTheImage) {
  const Picture source = gradient(10, 10);
  std::uint8_t out[3];
  Resizer resizer;
  EXPECT_THROW(
      resizer.resize(view_of(source), {0, 0, 5, 5}, {6, 6, 5, 5}, 1, 1, Interpolation::bilinear, false, out),
      InternalError);
}

}  // namespace
}  // namespace redline::data
