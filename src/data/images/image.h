// The picture types that decoding, resizing and encoding share.
#pragma once

#include <cstddef>
#include <cstdint>

namespace redline::data {

// In pixels; covers [x, x + width) × [y, y + height).
struct Rect {
  int x = 0;
  int y = 0;
  int width = 0;
  int height = 0;
};

// As Rect, with fractions of pixels.
struct Box {
  double x = 0;
  double y = 0;
  double width = 0;
  double height = 0;
};

enum class ImageFormat { jpeg, png, bmp, webp, tiff, gif };

const char* format_name(ImageFormat format);

// What an image's header says.
struct ImageInfo {
  ImageFormat format = ImageFormat::jpeg;
  int width = 0;
  int height = 0;
  int channels = 0;  // as stored: 1 grey, 2 grey + alpha, 3 colour, 4 CMYK (JPEG) or colour + alpha
};

// A view of a finished image that may be changed: [height, width, 3], rows packed.
struct RgbImage {
  std::uint8_t* data = nullptr;
  int width = 0;
  int height = 0;

  std::size_t bytes() const { return static_cast<std::size_t>(width) * static_cast<std::size_t>(height) * 3; }
};

// A view of decoded RGB pixels: part of an image, perhaps shrunk.
struct Pixels {
  const std::uint8_t* data = nullptr;  // [height, width, 3], rows `stride` bytes apart
  int width = 0;
  int height = 0;
  std::ptrdiff_t stride = 0;
  int shrink = 1;    // each pixel stands for shrink × shrink pixels of the stored image
  int origin_x = 0;  // where data[0] lies in the shrunk image
  int origin_y = 0;

  // A box of the stored image, in the coordinates of `data`.
  Box map(const Box& box) const {
    return {box.x / shrink - origin_x, box.y / shrink - origin_y, box.width / shrink, box.height / shrink};
  }
};

// One colour plane of a decoded part of an image.
struct Plane {
  const std::uint8_t* data = nullptr;  // [height, width], rows `stride` bytes apart
  int width = 0;
  int height = 0;
  std::ptrdiff_t stride = 0;
  int step_x = 1;  // pixels of the stored image that one of these stands for
  int step_y = 1;
  int origin_x = 0;  // where data[0] lies in the plane of the whole image
  int origin_y = 0;

  // A box of the stored image, in the coordinates of `data`.
  Box map(const Box& box) const {
    return {box.x / step_x - origin_x, box.y / step_y - origin_y, box.width / step_x, box.height / step_y};
  }
};

// A view of decoded pixels as JPEG stores them: brightness, and where it has colours two planes of colour
// difference (blue, red; 128 is none), perhaps at half the resolution.
struct Planes {
  Plane plane[3];
  int count = 0;  // 1 or 3
};

}  // namespace redline::data
