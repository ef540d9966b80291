// TIFF by libtiff: the first page, in any of the kinds that its RGBA interface takes. The tag of its
// orientation is not applied, as in other formats.
#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <limits>
#include <memory>
#include <string>

#include <tiffio.h>

#include "base/error.h"
#include "data/images/codecs.h"

namespace redline::data {
namespace {

// Of one strip or tile as stored or decoded; an image of the largest size that is taken needs less.
constexpr tmsize_t kMostAtOnce = tmsize_t{512} << 20;

class TiffReader {
 public:
  explicit TiffReader(Bytes bytes) : bytes_(bytes) {
    const std::unique_ptr<TIFFOpenOptions, decltype(&TIFFOpenOptionsFree)> options(TIFFOpenOptionsAlloc(),
                                                                                   TIFFOpenOptionsFree);
    TIFFOpenOptionsSetMaxSingleMemAlloc(options.get(), kMostAtOnce);
    TIFFOpenOptionsSetErrorHandlerExtR(options.get(), note_error, this);
    TIFFOpenOptionsSetWarningHandlerExtR(options.get(), ignore, nullptr);
    tiff_ = TIFFClientOpenExt("TIFF", "rm", this, read, write, seek, close, size, nullptr, nullptr,
                              options.get());
    if (tiff_ == nullptr) fail();
  }
  ~TiffReader() {
    if (tiff_ != nullptr) TIFFClose(tiff_);
  }
  TiffReader(const TiffReader&) = delete;
  TiffReader& operator=(const TiffReader&) = delete;

  TIFF* get() const { return tiff_; }
  [[noreturn]] void fail() const { throw DataError("TIFF: {}", error_.empty() ? "damaged" : error_); }

 private:
  static TiffReader& self(thandle_t handle) { return *static_cast<TiffReader*>(handle); }
  static tmsize_t read(thandle_t handle, void* to, tmsize_t count) {
    TiffReader& reader = self(handle);
    if (count <= 0 || reader.at_ >= reader.bytes_.size()) return 0;
    const std::size_t taken = std::min(static_cast<std::size_t>(count), reader.bytes_.size() - reader.at_);
    std::memcpy(to, reader.bytes_.data() + reader.at_, taken);
    reader.at_ += taken;
    return static_cast<tmsize_t>(taken);
  }
  static tmsize_t write(thandle_t, void*, tmsize_t) { return 0; }
  static toff_t seek(thandle_t handle, toff_t offset, int whence) {
    TiffReader& reader = self(handle);
    const toff_t from = whence == SEEK_SET   ? 0
                        : whence == SEEK_CUR ? reader.at_
                                             : static_cast<toff_t>(reader.bytes_.size());
    reader.at_ = static_cast<std::size_t>(from + offset);
    return from + offset;
  }
  static int close(thandle_t) { return 0; }
  static toff_t size(thandle_t handle) { return static_cast<toff_t>(self(handle).bytes_.size()); }
  static int note_error(TIFF*, void* user, const char*, const char* format, va_list values) {
    std::string& error = static_cast<TiffReader*>(user)->error_;
    if (!error.empty()) return 1;  // the first is the cause
    char text[256];
    std::vsnprintf(text, sizeof(text), format, values);
    error = text;
    return 1;
  }
  static int ignore(TIFF*, void*, const char*, const char*, va_list) { return 1; }

  Bytes bytes_;
  std::size_t at_ = 0;
  std::string error_;
  TIFF* tiff_ = nullptr;
};

}  // namespace

ImageInfo open_tiff(Bytes bytes) {
  const TiffReader reader(bytes);
  std::uint32_t width = 0, height = 0;
  std::uint16_t samples = 1, photometric = 0;
  TIFFGetField(reader.get(), TIFFTAG_IMAGEWIDTH, &width);
  TIFFGetField(reader.get(), TIFFTAG_IMAGELENGTH, &height);
  TIFFGetFieldDefaulted(reader.get(), TIFFTAG_SAMPLESPERPIXEL, &samples);
  TIFFGetField(reader.get(), TIFFTAG_PHOTOMETRIC, &photometric);
  if (photometric == PHOTOMETRIC_SEPARATED) samples = 3;  // CMYK becomes RGB
  constexpr std::uint32_t kMost = std::numeric_limits<int>::max();
  if (width > kMost || height > kMost) throw DataError("TIFF: {} × {} pixels", width, height);
  char why[1024] = "";
  if (!TIFFRGBAImageOK(reader.get(), why)) throw DataError("TIFF: {}", static_cast<const char*>(why));
  return {ImageFormat::tiff, static_cast<int>(width), static_cast<int>(height),
          std::clamp(static_cast<int>(samples), 1, 4)};
}

void decode_tiff(Bytes bytes, const ImageInfo& info, std::vector<std::uint8_t>& pixels) {
  const TiffReader reader(bytes);
  // Colours that alpha has not been multiplied into stay so.
  std::uint16_t extra_count = 0, *extra = nullptr;
  TIFFGetFieldDefaulted(reader.get(), TIFFTAG_EXTRASAMPLES, &extra_count, &extra);
  if (extra_count == 1) {
    const std::uint16_t associated = EXTRASAMPLE_ASSOCALPHA;
    TIFFSetField(reader.get(), TIFFTAG_EXTRASAMPLES, 1, &associated);
  }
  std::uint16_t orientation = ORIENTATION_TOPLEFT;
  TIFFGetFieldDefaulted(reader.get(), TIFFTAG_ORIENTATION, &orientation);
  std::uint8_t* rgba = room_for(info, 4, pixels);
  std::memset(rgba, 0, static_cast<std::size_t>(info.width) * static_cast<std::size_t>(info.height) * 4);
  // In memory a packed pixel is R, G, B, A on this machine's byte order.
  if (!TIFFReadRGBAImageOriented(reader.get(), static_cast<std::uint32_t>(info.width),
                                 static_cast<std::uint32_t>(info.height),
                                 reinterpret_cast<std::uint32_t*>(rgba), orientation, 1))
    reader.fail();
  drop_alpha(info, rgba);
}

}  // namespace redline::data
