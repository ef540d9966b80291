// Pictures and files that the data tests share.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/random.h"
#include "data/file.h"
#include "data/images/decode.h"
#include "data/images/encode.h"

namespace redline::data {

inline std::filesystem::path golden(const std::string& name) {
  return std::filesystem::path(REDLINE_GOLDEN) / name;
}

inline std::vector<std::uint8_t> bytes_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

struct Picture {
  int width = 0;
  int height = 0;
  std::vector<std::uint8_t> rgb;  // [height, width, 3]
};

inline Picture copy_of(const Pixels& pixels) {
  Picture picture{pixels.width, pixels.height, {}};
  for (int y = 0; y < pixels.height; ++y) {
    const std::uint8_t* row = pixels.data + y * pixels.stride;
    picture.rgb.insert(picture.rgb.end(), row, row + pixels.width * 3);
  }
  return picture;
}

inline Picture decoded(const std::vector<std::uint8_t>& bytes) {
  Decoder decoder;
  decoder.open(bytes);
  return copy_of(decoder.decode());
}

inline Pixels view_of(const Picture& picture) {
  Pixels pixels;
  pixels.data = picture.rgb.data();
  pixels.width = picture.width;
  pixels.height = picture.height;
  pixels.stride = picture.width * 3;
  return pixels;
}

// Smooth, so that JPEG keeps it, and different in every channel and direction.
inline Picture gradient(int width, int height, double frequency = 0.1) {
  Picture picture{width, height, {}};
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x) {
      picture.rgb.push_back(static_cast<std::uint8_t>(255 * x / width));
      picture.rgb.push_back(static_cast<std::uint8_t>(255 * y / height));
      picture.rgb.push_back(static_cast<std::uint8_t>(128 + 100 * std::sin((x + 2 * y) * frequency)));
    }
  return picture;
}

inline std::vector<std::uint8_t> gradient_jpeg(int width, int height, int quality = 90) {
  return encode_jpeg(gradient(width, height).rgb.data(), width, height, quality);
}

struct Difference {
  double mean = 0;
  int most = 0;
};

inline Difference compare(const std::vector<std::uint8_t>& a, const std::vector<std::uint8_t>& b) {
  Difference difference;
  if (a.size() != b.size()) return {1e9, 1 << 30};
  for (std::size_t i = 0; i < a.size(); ++i) {
    const int d = std::abs(int{a[i]} - int{b[i]});
    difference.mean += d;
    difference.most = std::max(difference.most, d);
  }
  difference.mean /= static_cast<double>(a.size());
  return difference;
}

// Runs code that must throw Kind, and gives its message.
template <typename Kind, typename Code>
std::string message_of(Code&& code) {
  try {
    code();
  } catch (const Kind& error) {
    return error.what();
  }
  return "(nothing was thrown)";
}

}  // namespace redline::data
