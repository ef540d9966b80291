#include "data/images/color_ops.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

namespace redline::data {
namespace {

using Table = std::array<std::uint8_t, 256>;
using Histogram = std::array<std::int64_t, 256>;

// From one value towards another and past it, cut off to a byte and rounded down, as Pillow's blend.
inline std::uint8_t blend(int from, int to, float factor) {
  const float value = static_cast<float>(from) + factor * static_cast<float>(to - from);
  return static_cast<std::uint8_t>(std::min(std::max(value, 0.0F), 255.0F));
}

// ITU-R 601 luma, rounded.
inline int grey(const std::uint8_t* pixel) {
  return (pixel[0] * 19595 + pixel[1] * 38470 + pixel[2] * 7471 + 0x8000) >> 16;
}

void look_up(const RgbImage& image, const Table& table) {
  std::uint8_t* const end = image.data + image.bytes();
  for (std::uint8_t* byte = image.data; byte < end; ++byte) *byte = table[*byte];
}

void look_up(const RgbImage& image, const std::array<Table, 3>& tables) {
  std::uint8_t* const end = image.data + image.bytes();
  for (std::uint8_t* pixel = image.data; pixel < end; pixel += 3)
    for (std::size_t c = 0; c < 3; ++c) pixel[c] = tables[c][pixel[c]];
}

std::array<Histogram, 3> histograms(const RgbImage& image) {
  std::array<Histogram, 3> counts{};
  const std::uint8_t* const end = image.data + image.bytes();
  for (const std::uint8_t* pixel = image.data; pixel < end; pixel += 3)
    for (std::size_t c = 0; c < 3; ++c) ++counts[c][pixel[c]];
  return counts;
}

// value(level) for every level, cut off to a byte.
template <typename Value>
Table table_of(Value&& value) {
  Table table;
  for (int level = 0; level < 256; ++level)
    table[static_cast<std::size_t>(level)] = static_cast<std::uint8_t>(std::clamp<int>(value(level), 0, 255));
  return table;
}

Table autocontrast_table(const Histogram& counts) {
  int low = 0, high = 255;
  while (low < 255 && counts[static_cast<std::size_t>(low)] == 0) ++low;
  while (high > 0 && counts[static_cast<std::size_t>(high)] == 0) --high;
  if (high <= low) return table_of([](int level) { return level; });
  const double scale = 255.0 / (high - low), offset = -low * scale;
  return table_of([&](int level) { return static_cast<int>(level * scale + offset); });
}

Table equalize_table(const Histogram& counts) {
  std::int64_t total = 0, last = 0;
  for (const std::int64_t count : counts) {
    total += count;
    if (count > 0) last = count;
  }
  const std::int64_t step = (total - last) / 255;
  if (step == 0) return table_of([](int level) { return level; });
  std::int64_t below = step / 2;
  return table_of([&](int level) {
    const std::int64_t value = below / step;
    below += counts[static_cast<std::size_t>(level)];
    return static_cast<int>(value);
  });
}

template <typename TableOf>
void per_channel(const RgbImage& image, TableOf&& table_of_channel) {
  const std::array<Histogram, 3> counts = histograms(image);
  look_up(image, {table_of_channel(counts[0]), table_of_channel(counts[1]), table_of_channel(counts[2])});
}

// A hue of 0 to 255 after a shift: its sixth of the circle, and the position in it.
struct TurnedHue {
  double part;
  const std::uint8_t* order;  // of red, green and blue: 0 is the value, then p, q and t as below
};

std::array<TurnedHue, 256> turned_hues(int turn) {
  static constexpr std::uint8_t kOrders[6][3] = {{0, 3, 1}, {2, 0, 1}, {1, 0, 3},
                                                 {1, 2, 0}, {3, 1, 0}, {0, 1, 2}};
  std::array<TurnedHue, 256> hues;
  for (int hue = 0; hue < 256; ++hue) {
    const double position = ((hue + turn) & 255) * 6.0 / 255.0;
    const int sector = static_cast<int>(position);
    hues[static_cast<std::size_t>(hue)] = {static_cast<double>(static_cast<float>(position - sector)),
                                           kOrders[sector % 6]};
  }
  return hues;
}

// Gives a pixel another hue, with hue, saturation and value rounded to bytes between, as an image in Pillow's
// HSV mode has them. A hue's neighbour is up to six levels away, so fp32 and fp64 are used where Pillow does.
void turn_hue(std::uint8_t* pixel, const std::array<TurnedHue, 256>& hues) {
  const int r = pixel[0], g = pixel[1], b = pixel[2];
  const int most = std::max({r, g, b}), least = std::min({r, g, b});
  if (most == least) return;
  const auto range = static_cast<float>(most - least);
  // Counted from the channel that is largest: the two others, and thirds of the circle as sixths.
  const int next = r == most ? g : g == most ? b : r, last = r == most ? b : g == most ? r : g;
  const double start = r == most ? 0.0 : g == most ? 2.0 : 4.0;
  const auto below_most = [&](int channel) {
    return static_cast<double>(static_cast<float>(most - channel) / range);
  };
  const double sector = start + below_most(last) - below_most(next);
  double circle = static_cast<float>(sector) / 6.0 + 1.0;
  if (circle >= 1.0) circle -= 1.0;
  const TurnedHue& hue = hues[static_cast<std::size_t>(static_cast<float>(circle) * 255.0)];
  const int saturation = static_cast<int>(range / static_cast<float>(most) * 255.0);
  const auto share = static_cast<double>(static_cast<float>(saturation / 255.0));
  const auto level = [&](double part) {
    return static_cast<std::uint8_t>(most * (1.0 - share * part) + 0.5);
  };
  const std::uint8_t levels[4] = {static_cast<std::uint8_t>(most), level(1.0), level(hue.part),
                                  level(1.0 - hue.part)};
  for (int c = 0; c < 3; ++c) pixel[c] = levels[hue.order[c]];
}

}  // namespace

void adjust_brightness(const RgbImage& image, double factor) {
  look_up(image, table_of([f = static_cast<float>(factor)](int level) { return blend(0, level, f); }));
}

void adjust_contrast(const RgbImage& image, double factor) {
  std::int64_t sum = 0;
  const std::uint8_t* const end = image.data + image.bytes();
  for (const std::uint8_t* pixel = image.data; pixel < end; pixel += 3) sum += grey(pixel);
  const double pixels = static_cast<double>(image.bytes()) / 3.0;
  const int mean = static_cast<int>(static_cast<double>(sum) / pixels + 0.5);
  look_up(image, table_of([=, f = static_cast<float>(factor)](int level) { return blend(mean, level, f); }));
}

void adjust_saturation(const RgbImage& image, double factor) {
  const auto f = static_cast<float>(factor);
  // By blocks: the greys, then a flat loop over bytes that compilers vectorise.
  constexpr std::size_t kBlock = 384;
  std::uint8_t greys[kBlock];
  for (std::size_t begin = 0; begin < image.bytes(); begin += kBlock) {
    std::uint8_t* const block = image.data + begin;
    const std::size_t count = std::min(kBlock, image.bytes() - begin);
    for (std::size_t i = 0; i < count; i += 3)
      greys[i] = greys[i + 1] = greys[i + 2] = static_cast<std::uint8_t>(grey(block + i));
    for (std::size_t i = 0; i < count; ++i) block[i] = blend(greys[i], block[i], f);
  }
}

void adjust_sharpness(const RgbImage& image, double factor, std::vector<std::uint8_t>& scratch) {
  if (image.width < 3 || image.height < 3) return;  // the filter leaves the border alone
  const auto f = static_cast<float>(factor);
  const std::size_t row = static_cast<std::size_t>(image.width) * 3;
  if (scratch.size() < 2 * row) scratch.resize(2 * row);
  std::uint8_t *above = scratch.data(), *here = above + row;  // rows as they were before this function
  std::memcpy(above, image.data, row);
  for (int y = 1; y + 1 < image.height; ++y) {
    std::uint8_t* const out = image.data + static_cast<std::size_t>(y) * row;
    const std::uint8_t* const below = out + row;
    std::memcpy(here, out, row);
    for (std::size_t i = 3; i + 3 < row; ++i) {
      const int sum = above[i - 3] + above[i] + above[i + 3] + here[i - 3] + 5 * here[i] + here[i + 3] +
                      below[i - 3] + below[i] + below[i + 3];
      const int smooth = static_cast<int>(static_cast<float>(sum) * (1.0F / 13.0F) + 0.5F);
      out[i] = blend(smooth, here[i], f);
    }
    std::swap(above, here);
  }
}

void adjust_hue(const RgbImage& image, double turn) {
  const std::array<TurnedHue, 256> hues = turned_hues(static_cast<int>(turn * 255.0));
  std::uint8_t* const end = image.data + image.bytes();
  for (std::uint8_t* pixel = image.data; pixel < end; pixel += 3) turn_hue(pixel, hues);
}

void posterize(const RgbImage& image, int bits) {
  const int mask = 0xff00 >> bits & 0xff;
  look_up(image, table_of([=](int level) { return level & mask; }));
}

void solarize(const RgbImage& image, double threshold) {
  look_up(image, table_of([=](int level) { return level < threshold ? level : 255 - level; }));
}

void autocontrast(const RgbImage& image) { per_channel(image, autocontrast_table); }
void equalize(const RgbImage& image) { per_channel(image, equalize_table); }

}  // namespace redline::data
