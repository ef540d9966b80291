#include "data/images/codecs.h"

#include <algorithm>
#include <cstring>

#include <png.h>

#include "base/error.h"

namespace redline::data {
namespace {

bool starts_with(Bytes bytes, std::string_view magic, std::size_t at = 0) {
  return bytes.size() >= at + magic.size() && std::memcmp(bytes.data() + at, magic.data(), magic.size()) == 0;
}

// libpng's simplified reader: it keeps its own error handling inside, and frees on every path.
struct PngReader {
  png_image image;

  explicit PngReader(Bytes bytes) {
    std::memset(&image, 0, sizeof(image));
    image.version = PNG_IMAGE_VERSION;
    if (!png_image_begin_read_from_memory(&image, bytes.data(), bytes.size()))
      throw DataError("PNG: {}", static_cast<const char*>(image.message));
  }
  ~PngReader() { png_image_free(&image); }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;
};

ImageInfo open_png(Bytes bytes) {
  const PngReader reader(bytes);
  ImageInfo info;
  info.format = ImageFormat::png;
  info.width = static_cast<int>(reader.image.width);
  info.height = static_cast<int>(reader.image.height);
  info.channels = PNG_IMAGE_SAMPLE_CHANNELS(reader.image.format & ~PNG_FORMAT_FLAG_COLORMAP);
  return info;
}

void decode_png(Bytes bytes, const ImageInfo& info, std::vector<std::uint8_t>& pixels) {
  PngReader reader(bytes);
  // With alpha, so that it can be dropped: without, libpng blends it into a background of its choice.
  reader.image.format = PNG_FORMAT_RGBA;
  std::uint8_t* rgba = room_for(info, 4, pixels);
  if (!png_image_finish_read(&reader.image, nullptr, rgba, static_cast<png_int_32>(info.width) * 4, nullptr))
    throw DataError("PNG: {}", static_cast<const char*>(reader.image.message));
  drop_alpha(info, rgba);
}

// Of a format whose library the build may be without.
struct OptionalCodec {
  decltype(Codec::open) open = nullptr;
  decltype(Codec::decode) decode = nullptr;
};
#ifdef REDLINE_WEBP
constexpr OptionalCodec kWebp{open_webp, decode_webp};
#else
constexpr OptionalCodec kWebp;
#endif
#ifdef REDLINE_TIFF
constexpr OptionalCodec kTiff{open_tiff, decode_tiff};
#else
constexpr OptionalCodec kTiff;
#endif
#ifdef REDLINE_GIF
constexpr OptionalCodec kGif{open_gif, decode_gif};
#else
constexpr OptionalCodec kGif;
#endif

bool begins_png(Bytes bytes) { return starts_with(bytes, "\x89PNG\r\n\x1a\n"); }
bool begins_bmp(Bytes bytes) { return starts_with(bytes, "BM"); }
bool begins_webp(Bytes bytes) { return starts_with(bytes, "RIFF") && starts_with(bytes, "WEBP", 8); }
bool begins_tiff(Bytes bytes) {
  using namespace std::string_view_literals;
  return starts_with(bytes, "II*\0"sv) || starts_with(bytes, "MM\0*"sv) || starts_with(bytes, "II+\0"sv) ||
         starts_with(bytes, "MM\0+"sv);
}
bool begins_gif(Bytes bytes) { return starts_with(bytes, "GIF87a") || starts_with(bytes, "GIF89a"); }

std::string make_formats_text() {
  std::vector<const char*> names = {"JPEG"};
  for (const Codec& codec : codecs())
    if (codec.open != nullptr) names.push_back(codec.name);
  std::string text = names[0];
  for (std::size_t i = 1; i < names.size(); ++i)
    text += (i + 1 == names.size() ? " and " : ", ") + std::string(names[i]);
  return text;
}

}  // namespace

const std::vector<Codec>& codecs() {
  static const std::vector<Codec> kCodecs = {
      {ImageFormat::png, "PNG", {"png"}, "libpng", begins_png, open_png, decode_png, 4},
      {ImageFormat::bmp, "BMP", {"bmp", "dib"}, "", begins_bmp, open_bmp, decode_bmp, 3},
      {ImageFormat::webp, "WebP", {"webp"}, "libwebp", begins_webp, kWebp.open, kWebp.decode, 8},
      {ImageFormat::tiff, "TIFF", {"tif", "tiff"}, "libtiff", begins_tiff, kTiff.open, kTiff.decode, 8},
      {ImageFormat::gif, "GIF", {"gif"}, "giflib", begins_gif, kGif.open, kGif.decode, 3},
  };
  return kCodecs;
}

const Codec* find_codec(Bytes bytes) {
  for (const Codec& codec : codecs())
    if (codec.begins(bytes)) return &codec;
  return nullptr;
}

bool reads_ending(std::string_view ending) {
  for (const std::string_view jpeg : {"jpg", "jpeg", "jpe", "jfif"})
    if (ending == jpeg) return true;
  return std::ranges::any_of(codecs(), [&](const Codec& codec) {
    return codec.open != nullptr && std::ranges::find(codec.endings, ending) != codec.endings.end();
  });
}

std::string_view usual_ending(ImageFormat format) {
  for (const Codec& codec : codecs())
    if (codec.format == format) return codec.endings.front();
  return "jpg";
}

const std::string& formats_text() {
  static const std::string kText = make_formats_text();
  return kText;
}

const char* format_name(ImageFormat format) {
  for (const Codec& codec : codecs())
    if (codec.format == format) return codec.name;
  return "JPEG";
}

std::uint8_t* room_for(const ImageInfo& info, std::size_t channels, std::vector<std::uint8_t>& pixels) {
  const std::size_t needed =
      static_cast<std::size_t>(info.width) * static_cast<std::size_t>(info.height) * channels;
  if (pixels.size() < needed) pixels.resize(needed);
  return pixels.data();
}

void drop_alpha(const ImageInfo& info, std::uint8_t* pixels) {
  const std::size_t count = static_cast<std::size_t>(info.width) * static_cast<std::size_t>(info.height);
  std::uint8_t* to = pixels;
  const std::uint8_t* from = pixels;
  for (std::size_t i = 0; i < count; ++i, from += 4, to += 3) {
    to[0] = from[0];
    to[1] = from[1];
    to[2] = from[2];
  }
}

}  // namespace redline::data
