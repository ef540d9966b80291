// Formats other than JPEG, which are decoded whole: PNG, BMP, and, if Redline was built with their libraries,
// WebP, TIFF and GIF. If there are several frames or pages, the first is used. All bytes are untrusted.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/images/image.h"

namespace redline::data {

using Bytes = std::span<const std::uint8_t>;

struct Codec {
  ImageFormat format;
  const char* name;                       // "PNG"
  std::vector<std::string_view> endings;  // of file names, the usual one first
  const char* library;                    // that a build without it lacks
  bool (*begins)(Bytes bytes);            // whether a file looks like one
  // Reads the header. Throws DataError. Null in a build without the library.
  ImageInfo (*open)(Bytes bytes);
  // Puts RGB pixels, rows packed, at the front of `pixels`, which is made larger as needed. `info` is what
  // open() gave. Throws DataError.
  void (*decode)(Bytes bytes, const ImageInfo& info, std::vector<std::uint8_t>& pixels);
  int memory;  // bytes a pixel that decoding takes, the result included
};

const std::vector<Codec>& codecs();
// By the first bytes; null if no codec knows them.
const Codec* find_codec(Bytes bytes);
// Whether images with this file name extension, in lower case and without the dot, are read, JPEG included.
bool reads_ending(std::string_view ending);
// Of file names: "jpg", "tif".
std::string_view usual_ending(ImageFormat format);
// "JPEG, PNG, BMP, WebP, TIFF and GIF", or what this build reads of them.
const std::string& formats_text();

ImageInfo open_bmp(Bytes bytes);
void decode_bmp(Bytes bytes, const ImageInfo& info, std::vector<std::uint8_t>& pixels);
ImageInfo open_webp(Bytes bytes);
void decode_webp(Bytes bytes, const ImageInfo& info, std::vector<std::uint8_t>& pixels);
ImageInfo open_tiff(Bytes bytes);
void decode_tiff(Bytes bytes, const ImageInfo& info, std::vector<std::uint8_t>& pixels);
ImageInfo open_gif(Bytes bytes);
void decode_gif(Bytes bytes, const ImageInfo& info, std::vector<std::uint8_t>& pixels);

// Room for `channels` bytes a pixel.
std::uint8_t* room_for(const ImageInfo& info, std::size_t channels, std::vector<std::uint8_t>& pixels);
// RGBA to RGB in place; alpha is dropped.
void drop_alpha(const ImageInfo& info, std::uint8_t* pixels);

}  // namespace redline::data
