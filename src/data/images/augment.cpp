#include "data/images/augment.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "base/clock.h"
#include "base/error.h"

namespace redline::data {
namespace {

constexpr std::uint64_t kAugmentStream =
    0x61756d65;  // keeps these draws apart from those of the sample order

using Closing = std::unique_ptr<Decoder, decltype([](Decoder* decoder) { decoder->close(); })>;

}  // namespace

void validate(const TransformOptions& o) {
  if (o.size < 1 || o.size > 8192) throw UsageError("--image-size {} is not between 1 and 8192", o.size);
  if (!(o.scale_min > 0) || !(o.scale_max <= 1) || !(o.scale_min <= o.scale_max))
    throw UsageError("a random crop's area from {} to {} of the image; it needs 0 < low <= high <= 1",
                     o.scale_min, o.scale_max);
  if (!(o.ratio_min > 0) || !(o.ratio_min <= o.ratio_max) || !std::isfinite(o.ratio_max))
    throw UsageError("a random crop's width/height ratio from {} to {}; it needs 0 < low <= high",
                     o.ratio_min, o.ratio_max);
  if (!(o.flip >= 0 && o.flip <= 1)) throw UsageError("a flip probability of {}; it needs 0 to 1", o.flip);
  if (!(o.centre > 0 && o.centre <= 1))
    throw UsageError("a centre crop of {}; it needs 0 < share <= 1", o.centre);
  validate(o.distort);
}

Random sample_random(std::uint64_t seed, std::int64_t epoch, std::int64_t sample) {
  return Random(
      seed, mix(mix(kAugmentStream, static_cast<std::uint64_t>(epoch)), static_cast<std::uint64_t>(sample)));
}

Crop random_crop(const TransformOptions& o, int width, int height, Random& random) {
  Crop crop;
  crop.flip = random.uniform() < o.flip;
  const double area = static_cast<double>(width) * height;
  const double log_low = std::log(o.ratio_min), log_high = std::log(o.ratio_max);
  for (int attempt = 0; attempt < 10; ++attempt) {
    const double target = area * random.uniform(o.scale_min, o.scale_max);
    const double ratio = std::exp(random.uniform(log_low, log_high));
    const int w = static_cast<int>(std::nearbyint(std::sqrt(target * ratio)));
    const int h = static_cast<int>(std::nearbyint(std::sqrt(target / ratio)));
    if (w <= 0 || h <= 0 || w > width || h > height) continue;
    crop.region = {static_cast<int>(random.below(static_cast<std::uint64_t>(width - w) + 1)),
                   static_cast<int>(random.below(static_cast<std::uint64_t>(height - h) + 1)), w, h};
    return crop;
  }
  int w = width, h = height;
  const double ratio = static_cast<double>(width) / height;
  if (ratio < o.ratio_min)
    h = static_cast<int>(std::nearbyint(w / o.ratio_min));
  else if (ratio > o.ratio_max)
    w = static_cast<int>(std::nearbyint(h * o.ratio_max));
  w = std::clamp(w, 1, width);
  h = std::clamp(h, 1, height);
  crop.region = {(width - w) / 2, (height - h) / 2, w, h};
  return crop;
}

ResizedPart centre_part(const TransformOptions& o, int width, int height) {
  const int shorter = std::max(o.size, static_cast<int>(std::nearbyint(o.size / o.centre)));
  const auto longer = [&](int this_side, int other) {
    return static_cast<int>(std::int64_t{shorter} * this_side / other);
  };
  const int w = width <= height ? shorter : longer(width, height);
  const int h = width <= height ? longer(height, width) : shorter;
  // Half-way cases go to the even pixel, as Python's round does.
  const auto margin = [&](int side) { return static_cast<int>(std::nearbyint((side - o.size) / 2.0)); };
  return {w, h, {margin(w), margin(h), o.size, o.size}};
}

Box centre_box(const TransformOptions& o, int width, int height) {
  const ResizedPart resized = centre_part(o, width, height);
  const double step_x = static_cast<double>(width) / resized.width;
  const double step_y = static_cast<double>(height) / resized.height;
  return {resized.part.x * step_x, resized.part.y * step_y, o.size * step_x, o.size * step_y};
}

Transform::Transform(const TransformOptions& options, const DecodeLimits& limits)
    : options_(options), decoder_(limits), distorter_(options.distort) {
  validate(options);
}

View choose_view(const TransformOptions& o, int width, int height, Random& random) {
  if (!o.train) return {centre_box(o, width, height), {0, 0, width, height}, false};
  const Crop crop = random_crop(o, width, height, random);
  const Rect& r = crop.region;
  return {{double(r.x), double(r.y), double(r.width), double(r.height)}, r, crop.flip};
}

void Transform::run(std::span<const std::uint8_t> bytes, Random random, std::uint8_t* out,
                    StageSeconds* seconds) {
  StageSeconds ignored;
  StageSeconds& spent = seconds ? *seconds : ignored;
  Stopwatch watch;
  const ImageInfo info = decoder_.open(bytes);
  const Closing closes_at_the_end(&decoder_);
  const View view = choose_view(options_, info.width, info.height, random);
  const int size = options_.size;
  if (options_.train) {
    const int shrink = options_.shortcuts ? choose_shrink(view.clip, size, size) : 1;
    if (Planes planes; options_.shortcuts && decoder_.decode_planes(view.clip, shrink, planes)) {
      spent.decode += watch.lap();
      resizer_.resize(planes, view.box, size, size, options_.filter, view.flip, out);
    } else {
      const Pixels pixels = decoder_.decode(view.clip, shrink);
      spent.decode += watch.lap();
      const Box box = pixels.map(view.box);
      resizer_.resize(pixels, box, pixels_of(box, pixels.width, pixels.height), size, size, options_.filter,
                      view.flip, out);
    }
    distorter_.run({out, size, size}, random);
  } else {
    // The filter reaches past the box by its support: two of the pixels that become one, and one more for
    // rounding.
    const Box& box = view.box;
    const double reach_x = 2 * std::max(1.0, box.width / size) + 1;
    const double reach_y = 2 * std::max(1.0, box.height / size) + 1;
    const Box seen{box.x - reach_x, box.y - reach_y, box.width + 2 * reach_x, box.height + 2 * reach_y};
    const Pixels pixels = decoder_.decode(pixels_of(seen, info.width, info.height));
    spent.decode += watch.lap();
    exact_resizer_.resize(pixels, info.width, info.height, centre_part(options_, info.width, info.height),
                          options_.filter, out);
  }
  spent.resize += watch.lap();
}

std::optional<Transform::Screened> Transform::screen(std::span<const std::uint8_t> bytes, Random random) {
  const ImageInfo info = decoder_.open(bytes);
  const Closing closes_at_the_end(&decoder_);
  if (!decoder_.plain_jpeg()) return {};
  return Screened{info.width, info.height, choose_view(options_, info.width, info.height, random)};
}

}  // namespace redline::data
