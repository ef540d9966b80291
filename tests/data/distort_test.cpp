#include "data/images/distort.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "base/error.h"
#include "data/images/color_ops.h"
#include "data/moments.h"
#include "data/pictures.h"

namespace redline::data {
namespace {

// By torchvision's name, as policies.txt has it, and by ours.
const std::map<std::string, ImageOp>& image_ops() {
  static const std::map<std::string, ImageOp> ops = {{"Identity", ImageOp::identity},
                                                     {"identity", ImageOp::identity},
                                                     {"ShearX", ImageOp::shear_x},
                                                     {"shear_x", ImageOp::shear_x},
                                                     {"ShearY", ImageOp::shear_y},
                                                     {"shear_y", ImageOp::shear_y},
                                                     {"TranslateX", ImageOp::translate_x},
                                                     {"translate_x", ImageOp::translate_x},
                                                     {"TranslateY", ImageOp::translate_y},
                                                     {"translate_y", ImageOp::translate_y},
                                                     {"Rotate", ImageOp::rotate},
                                                     {"rotate", ImageOp::rotate},
                                                     {"Brightness", ImageOp::brightness},
                                                     {"brightness", ImageOp::brightness},
                                                     {"Color", ImageOp::color},
                                                     {"color", ImageOp::color},
                                                     {"Contrast", ImageOp::contrast},
                                                     {"contrast", ImageOp::contrast},
                                                     {"Sharpness", ImageOp::sharpness},
                                                     {"sharpness", ImageOp::sharpness},
                                                     {"Posterize", ImageOp::posterize},
                                                     {"posterize", ImageOp::posterize},
                                                     {"Solarize", ImageOp::solarize},
                                                     {"solarize", ImageOp::solarize},
                                                     {"AutoContrast", ImageOp::autocontrast},
                                                     {"autocontrast", ImageOp::autocontrast},
                                                     {"Equalize", ImageOp::equalize},
                                                     {"equalize", ImageOp::equalize}};
  return ops;
}

RgbImage view(Picture& picture) { return {picture.rgb.data(), picture.width, picture.height}; }

// The golden files are Pillow's results. Where the arithmetic is the same, so are the bytes; warps weigh
// pixels in units of 1/8192 where Pillow does in fp64, up to 0.06 levels away, so a value near the edge
// between two levels may fall on the other side.
TEST(Distort, OperationsMatchPillow) {
  const Picture source = decoded(bytes_of(golden("ops_source.png")));
  const Picture sheet = decoded(bytes_of(golden("ops.png")));
  std::ifstream cases(golden("ops.txt"));
  AugmentScratch scratch;
  std::string name;
  double amount = 0;
  std::size_t at = 0;
  const std::size_t bytes = source.rgb.size();
  while (cases >> name >> amount) {
    Picture ours = source;
    if (name == "autocontrast" || name == "equalize")
      for (std::uint8_t& value : ours.rgb) value = static_cast<std::uint8_t>(40 + value / 2);
    if (name == "hue")
      adjust_hue(view(ours), amount);
    else
      apply({image_ops().at(name), amount}, view(ours), scratch);
    const auto from = sheet.rgb.begin() + static_cast<std::ptrdiff_t>(at);
    const Difference difference = compare(ours.rgb, {from, from + static_cast<std::ptrdiff_t>(bytes)});
    const bool warps = name == "rotate" || name.starts_with("shear");
    EXPECT_LE(difference.most, warps ? 1 : 0) << name << " " << amount;
    EXPECT_LE(difference.mean, warps ? 0.06 : 0) << name << " " << amount;
    at += bytes;
  }
  EXPECT_EQ(at, sheet.rgb.size());
}

TEST(Distort, MagnitudesAreTorchvisions) {
  std::ifstream table(golden("policies.txt"));
  std::string line;
  int seen = 0;
  while (std::getline(table, line)) {
    if (line.front() == '#') continue;
    std::istringstream fields(line);
    std::string policy, name;
    bool is_signed = false;
    fields >> policy >> name >> is_signed;
    const AutoAugment kind = policy == "ra" ? AutoAugment::rand_augment : AutoAugment::trivial_augment_wide;
    for (const int magnitude : {0, 5, 9, 17, 30}) {
      double amount = 0;
      fields >> amount;
      EXPECT_NEAR(amount_of(kind, image_ops().at(name), magnitude, 224), amount, 1e-6) << line;
    }
    std::set<bool> signs;
    Random random(5, static_cast<std::uint64_t>(seen));
    for (int i = 0; i < 2000; ++i) {
      const ImageStep step = draw_step(kind, 9, 224, random);
      if (step.op == image_ops().at(name) && step.amount != 0) signs.insert(step.amount < 0);
    }
    EXPECT_EQ(signs.contains(true), is_signed) << line;
    ++seen;
  }
  EXPECT_EQ(seen, 28);
}

// Six standard deviations around what even chances give.
TEST(Distort, PoliciesDrawEveryOperationAndMagnitudeAlike) {
  constexpr int kDraws = 42000;
  std::map<ImageOp, int> ops;
  std::map<double, int> amounts;
  Random random(3);
  for (int i = 0; i < kDraws; ++i) {
    ++ops[draw_step(AutoAugment::rand_augment, 9, 224, random).op];
    const ImageStep step = draw_step(AutoAugment::trivial_augment_wide, 9, 224, random);
    if (step.op == ImageOp::rotate) ++amounts[std::fabs(step.amount)];
  }
  ASSERT_EQ(ops.size(), 14u);
  for (const auto& [op, count] : ops) EXPECT_NEAR(count, 3000, 6 * std::sqrt(3000)) << static_cast<int>(op);
  ASSERT_EQ(amounts.size(), 31u);
  for (const auto& [amount, count] : amounts)
    EXPECT_NEAR(count, 3000 / 31.0, 6 * std::sqrt(3000 / 31.0)) << amount;
}

TEST(Distort, JitterDrawsFromItsRangesInAnyOrder) {
  constexpr int kDraws = 24000;
  const ColorJitter options{0.4, 1.5, 0, 0.1};
  Random random(9);
  std::map<std::array<int, 4>, int> orders;
  double least[4] = {9, 9, 9, 9}, most[4] = {-9, -9, -9, -9}, sums[4] = {};
  for (int i = 0; i < kDraws; ++i) {
    const JitterDraw draw = draw_jitter(options, random);
    ++orders[draw.order];
    for (std::size_t k = 0; k < 4; ++k) {
      least[k] = std::min(least[k], draw.amount[k]);
      most[k] = std::max(most[k], draw.amount[k]);
      sums[k] += draw.amount[k];
    }
  }
  const double low[4] = {0.6, 0, 0, -0.1}, high[4] = {1.4, 2.5, 0, 0.1};
  for (int k = 0; k < 4; ++k) {
    const double width = high[k] - low[k];
    EXPECT_GE(least[k], low[k]);
    EXPECT_LE(most[k], high[k]);
    EXPECT_LE(least[k], low[k] + 0.01 * width);
    EXPECT_GE(most[k], high[k] - 0.01 * width);
    // A mean of uniform draws has this standard error; six of them.
    EXPECT_NEAR(sums[k] / kDraws, (low[k] + high[k]) / 2, 6 * width / std::sqrt(12.0 * kDraws) + 1e-12);
  }
  ASSERT_EQ(orders.size(), 24u);  // of three properties and a gap
  for (const auto& [order, count] : orders) {
    EXPECT_EQ(std::count(order.begin(), order.end(), -1), 1);
    EXPECT_NEAR(count, 1000, 6 * std::sqrt(1000));
  }
}

TEST(Distort, ErasingIsDistributedAsTorchvisionDrawsIt) {
  std::ifstream table(golden("erasing.txt"));
  std::string line;
  int seen = 0;
  while (std::getline(table, line)) {
    if (line.front() == '#') continue;
    std::istringstream fields(line);
    int side = 0;
    RandomErasing options;
    options.probability = 1;
    fields >> side >> options.scale_min >> options.scale_max >> options.ratio_min >> options.ratio_max;
    RegionMoments moments;
    Random random(13, static_cast<std::uint64_t>(seen));
    for (int i = 0; i < 20000; ++i) {
      const Rect r = draw_erasing(options, side, side, random);
      moments.add(r, side, side, std::log(double(r.height) / r.width));
    }
    moments.expect_like(fields, line);
    ++seen;
  }
  EXPECT_EQ(seen, 2);
}

TEST(Distort, ErasesWithItsProbabilityAndNothingElse) {
  DistortOptions options;
  options.erase.probability = 0.25;
  Distorter distorter(options);
  const Picture source = gradient(32, 32);
  int erased = 0;
  for (std::uint64_t i = 0; i < 2000; ++i) {
    Picture ours = source;
    Random random(1, i);
    distorter.run(view(ours), random);
    if (ours.rgb == source.rgb) continue;
    ++erased;
    for (std::size_t at = 0; at < ours.rgb.size(); at += 3) {
      const std::uint8_t* pixel = &ours.rgb[at];
      ASSERT_TRUE(std::equal(pixel, pixel + 3, &source.rgb[at]) ||
                  std::equal(pixel, pixel + 3, options.erase.color.begin()));
    }
  }
  EXPECT_NEAR(erased, 500, 6 * std::sqrt(2000 * 0.25 * 0.75));
}

TEST(Distort, WithoutOptionsNothingChanges) {
  Picture ours = gradient(20, 20);
  Random random(1);
  Distorter(DistortOptions{}).run(view(ours), random);
  EXPECT_EQ(ours.rgb, gradient(20, 20).rgb);
}

TEST(Distort, JitterChangesThePropertyItDrew) {
  using Adjust = void (*)(const RgbImage&, double);
  const std::pair<ColorJitter, Adjust> properties[] = {{{0.5, 0, 0, 0}, adjust_brightness},
                                                       {{0, 0.5, 0, 0}, adjust_contrast},
                                                       {{0, 0, 0.5, 0}, adjust_saturation},
                                                       {{0, 0, 0, 0.4}, adjust_hue}};
  for (int property = 0; property < JitterDraw::kProperties; ++property) {
    DistortOptions options;
    const auto& [jitter, adjust] = properties[property];
    options.jitter = jitter;
    Picture ours = gradient(24, 20), expected = ours;
    Random random(4), same(4);
    Distorter(options).run(view(ours), random);
    adjust(view(expected), draw_jitter(jitter, same).amount[static_cast<std::size_t>(property)]);
    EXPECT_EQ(ours.rgb, expected.rgb) << property;
    EXPECT_NE(ours.rgb, gradient(24, 20).rgb) << property;
  }
}

TEST(Distort, IsAFunctionOfTheGenerator) {
  DistortOptions options;
  options.policy = AutoAugment::rand_augment;
  options.jitter = {0.4, 0.4, 0.4, 0.1};
  options.erase.probability = 0.5;
  Distorter one(options), other(options);
  int different = 0;
  for (std::uint64_t i = 0; i < 50; ++i) {
    Picture a = gradient(24, 24), b = a, c = a;
    Random first(2, i), second(2, i), third(3, i);
    one.run(view(a), first);
    other.run(view(b), second);
    other.run(view(c), third);
    EXPECT_EQ(a.rgb, b.rgb);
    different += a.rgb != c.rgb;
  }
  EXPECT_GT(different, 40);
}

TEST(Distort, ARightAngleLosesNothing) {
  const Picture source = gradient(16, 16);
  Picture turned = source;
  AugmentScratch scratch;
  apply({ImageOp::rotate, 90}, view(turned), scratch);
  for (int y = 0; y < 16; ++y)
    for (int x = 0; x < 16; ++x)
      for (int c = 0; c < 3; ++c)
        ASSERT_EQ(turned.rgb[static_cast<std::size_t>((y * 16 + x) * 3 + c)],
                  source.rgb[static_cast<std::size_t>((x * 16 + 15 - y) * 3 + c)]);
}

TEST(Distort, OperationsTakeImagesOfOnePixel) {
  AugmentScratch scratch;
  for (const auto& [name, op] : image_ops()) {
    Picture pixel{1, 1, {10, 200, 30}};
    apply({op, 1}, view(pixel), scratch);
  }
  Picture pixel{1, 1, {10, 200, 30}};
  adjust_hue(view(pixel), 0.5);
}

TEST(Distort, ImpossibleOptionsAreUsageErrors) {
  const auto with = [](auto change) {
    DistortOptions options;
    change(options);
    validate(options);
  };
  EXPECT_NO_THROW(with([](auto&) {}));
  EXPECT_THROW(with([](auto& o) { o.magnitude = 31; }), UsageError);
  EXPECT_THROW(with([](auto& o) { o.operations = -1; }), UsageError);
  EXPECT_THROW(with([](auto& o) { o.jitter.hue = 0.6; }), UsageError);
  EXPECT_THROW(with([](auto& o) { o.jitter.contrast = std::nan(""); }), UsageError);
  EXPECT_THROW(with([](auto& o) { o.erase.probability = 1.5; }), UsageError);
  EXPECT_THROW(with([](auto& o) { o.erase.scale_max = 0.01; }), UsageError);
  EXPECT_THROW(with([](auto& o) { o.erase.ratio_max = INFINITY; }), UsageError);
}

}  // namespace
}  // namespace redline::data
