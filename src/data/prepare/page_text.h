// Helpers for HTML pages with embedded images and untrusted texts.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace redline::data {

extern const std::string_view kImagePageStyle;  // CSS: figures side by side, light or dark

std::string base64(std::span<const std::uint8_t> bytes);  // for "data:image/jpeg;base64,…"
std::string escaped(std::string_view text);               // for HTML, within elements and attributes

}  // namespace redline::data
