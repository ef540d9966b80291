#include "data/images/encode.h"

#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

// jpeglib.h needs size_t and FILE declared before it.
#include <jpeglib.h>
#include <png.h>
#include <zlib.h>

#include "base/error.h"

namespace redline::data {
namespace {

struct JpegWriter {
  jpeg_error_mgr errors;
  std::jmp_buf escape;
  char message[JMSG_LENGTH_MAX];
  jpeg_compress_struct cinfo;
  unsigned char* bytes = nullptr;  // malloc'ed by libjpeg
  unsigned long size = 0;          // NOLINT(google-runtime-int): libjpeg's type

  JpegWriter() {
    cinfo.err = jpeg_std_error(&errors);
    errors.error_exit = [](j_common_ptr common) {
      auto& self = *static_cast<JpegWriter*>(common->client_data);
      common->err->format_message(common, self.message);
      std::longjmp(self.escape, 1);
    };
    cinfo.client_data = this;
    jpeg_create_compress(&cinfo);
  }
  ~JpegWriter() {
    jpeg_destroy_compress(&cinfo);
    std::free(bytes);
  }
  JpegWriter(const JpegWriter&) = delete;
  JpegWriter& operator=(const JpegWriter&) = delete;

  // False on failure, with `message` set. Holds nothing that needs a destructor, since libjpeg jumps out of
  // it.
  bool write(const std::uint8_t* rgb, int width, int height, int quality) {
    if (setjmp(escape) != 0) return false;
    jpeg_mem_dest(&cinfo, &bytes, &size);
    cinfo.image_width = static_cast<JDIMENSION>(width);
    cinfo.image_height = static_cast<JDIMENSION>(height);
    cinfo.input_components = 3;
    cinfo.in_color_space = JCS_RGB;
    jpeg_set_defaults(&cinfo);
    jpeg_set_quality(&cinfo, quality, TRUE);
    jpeg_start_compress(&cinfo, TRUE);
    while (cinfo.next_scanline < cinfo.image_height) {
      JSAMPROW row = const_cast<JSAMPROW>(rgb) + std::size_t{cinfo.next_scanline} * cinfo.image_width * 3;
      jpeg_write_scanlines(&cinfo, &row, 1);
    }
    jpeg_finish_compress(&cinfo);
    return true;
  }
};

void put_number(std::string& out, std::uint32_t number) {  // PNG has the high byte first
  for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>(number >> shift);
}

// tEXt: its length, then keyword, a zero and the text, then their checksum.
std::string text_chunk(const std::string& keyword, const std::string& text) {
  const std::string body = "tEXt" + keyword + '\0' + text;
  std::string chunk;
  put_number(chunk, static_cast<std::uint32_t>(body.size() - 4));
  chunk += body;
  put_number(chunk, static_cast<std::uint32_t>(crc32(0, reinterpret_cast<const Bytef*>(body.data()),
                                                     static_cast<uInt>(body.size()))));
  return chunk;
}

}  // namespace

std::vector<std::uint8_t> encode_jpeg(const std::uint8_t* rgb, int width, int height, int quality) {
  const auto writer = std::make_unique<JpegWriter>();
  if (!writer->write(rgb, width, height, quality))
    throw InternalError("cannot write a JPEG of {} × {}: {}", width, height,
                        static_cast<const char*>(writer->message));
  return {writer->bytes, writer->bytes + writer->size};
}

std::vector<std::uint8_t> encode_png(const std::uint8_t* rgb, int width, int height,
                                     const std::string& software) {
  png_image image;
  std::memset(&image, 0, sizeof(image));
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(width);
  image.height = static_cast<png_uint_32>(height);
  image.format = PNG_FORMAT_RGB;
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(image);
  std::vector<std::uint8_t> bytes(size);
  if (!png_image_write_to_memory(&image, bytes.data(), &size, 0, rgb, 0, nullptr))
    throw InternalError("cannot write a PNG of {} × {}: {}", width, height,
                        static_cast<const char*>(image.message));
  bytes.resize(size);
  if (!software.empty()) {
    const std::string text = text_chunk("Software", software);
    constexpr std::ptrdiff_t kHeader = 8 + 25;  // signature and IHDR
    bytes.insert(bytes.begin() + kHeader, text.begin(), text.end());
  }
  return bytes;
}

}  // namespace redline::data
