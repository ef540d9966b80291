// Prints what the data pipeline makes of image files, for tests that compare it with other programs:
//     data_probe whole FILE            the decoded image
//     data_probe eval SIZE FILE        the evaluation transform
//     data_probe train SIZE SEEDS FILE the training transform for seeds 0, 1, … SEEDS - 1, one after the
//     other;
//                                      the crops go to stderr, a line each: x y width height flip
// as RGB bytes, after a line "width height".
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "data/file.h"
#include "data/images/augment.h"

namespace {

using namespace redline::data;

void print(int width, int height, const std::vector<std::uint8_t>& rgb) {
  fmt::print("{} {}\n", width, height);
  std::fwrite(rgb.data(), 1, rgb.size(), stdout);
}

void whole(std::span<const std::uint8_t> bytes) {
  Decoder decoder;
  decoder.open(bytes);
  const Pixels pixels = decoder.decode();
  std::vector<std::uint8_t> rgb;
  for (int y = 0; y < pixels.height; ++y)
    rgb.insert(rgb.end(), pixels.data + y * pixels.stride,
               pixels.data + y * pixels.stride + pixels.width * 3);
  print(pixels.width, pixels.height, rgb);
}

void transformed(std::span<const std::uint8_t> bytes, bool train, int size, std::uint64_t seed) {
  TransformOptions options;
  options.train = train;
  options.size = size;
  std::vector<std::uint8_t> rgb(static_cast<std::size_t>(size) * static_cast<std::size_t>(size) * 3);
  Transform(options, {}).run(bytes, sample_random(seed, 0, 0), rgb.data());
  if (train) {
    Decoder decoder;
    const ImageInfo info = decoder.open(bytes);
    redline::Random random = sample_random(seed, 0, 0);
    const Crop crop = random_crop(options, info.width, info.height, random);
    fmt::print(stderr, "{} {} {} {} {:d}\n", crop.region.x, crop.region.y, crop.region.width,
               crop.region.height, crop.flip);
  }
  print(size, size, rgb);
}

}  // namespace

int main(int argc, char** argv) try {
  const std::vector<std::string> words(argv + 1, argv + argc);
  FileBytes memory;
  const auto bytes = [&] { return read_whole(words.back(), 1 << 28, memory); };
  if (words.size() == 2 && words[0] == "whole") {
    whole(bytes());
  } else if (words.size() == 3 && words[0] == "eval") {
    transformed(bytes(), false, std::atoi(words[1].c_str()), 0);
  } else if (words.size() == 4 && words[0] == "train") {
    const auto file = bytes();
    for (std::uint64_t seed = 0; seed < std::strtoull(words[2].c_str(), nullptr, 10); ++seed)
      transformed(file, true, std::atoi(words[1].c_str()), seed);
  } else {
    return 64;
  }
  return 0;
} catch (const redline::Error& error) {
  fmt::print(stderr, "{}\n", error.what());
  return static_cast<int>(error.code());
}
