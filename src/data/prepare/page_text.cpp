#include "data/prepare/page_text.h"

#include "base/printable.h"

namespace redline::data {

const std::string_view kImagePageStyle = R"(
body { font: 14px/1.4 system-ui, sans-serif; margin: 24px; color: #1a1a1a; background: #fff; }
h1 { font-size: 18px; } p { color: #555; max-width: 70em; }
main { display: flex; flex-wrap: wrap; gap: 12px; }
figure { margin: 0; width: 176px; } figcaption { overflow-wrap: anywhere; }
img { width: 176px; image-rendering: auto; border: 1px solid #ccc; }
@media (prefers-color-scheme: dark) { body { color: #ddd; background: #111; } p { color: #aaa; } }
)";

std::string base64(std::span<const std::uint8_t> bytes) {
  static constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t word = std::uint32_t{bytes[i]} << 16;
    if (i + 1 < bytes.size()) word |= std::uint32_t{bytes[i + 1]} << 8;
    if (i + 2 < bytes.size()) word |= bytes[i + 2];
    for (std::size_t k = 0; k < 4; ++k)
      out += i + k > bytes.size() ? '=' : kDigits[word >> (18 - 6 * k) & 63];
  }
  return out;
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : printable(text)) {
    if (c == '<')
      out += "&lt;";
    else if (c == '&')
      out += "&amp;";
    else if (c == '"')
      out += "&quot;";
    else
      out += c;
  }
  return out;
}

}  // namespace redline::data
