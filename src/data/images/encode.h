// From RGB pixels to the bytes of a JPEG or PNG file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace redline::data {

// quality: 1..100 by libjpeg's scale; chroma at half resolution, as cameras write it. The same pixels give
// the same bytes. Throws InternalError when libjpeg refuses.
std::vector<std::uint8_t> encode_jpeg(const std::uint8_t* rgb, int width, int height, int quality);

// Lossless. With the program that wrote it as the text "Software", where one is given.
std::vector<std::uint8_t> encode_png(const std::uint8_t* rgb, int width, int height,
                                     const std::string& software = {});

}  // namespace redline::data
