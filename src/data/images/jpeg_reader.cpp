#include "data/images/jpeg_reader.h"

#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <cstring>

// jpeglib.h needs size_t and FILE declared before it.
#include <jerror.h>
#include <jpeglib.h>

#include "base/error.h"

namespace redline::data {
namespace {

// A progressive file may hold thousands of tiny scans, each of which walks the whole image: a cheap way to
// hang a decoder. Encoders write about ten.
constexpr int kMaxScans = 500;

// Pixels decoded around a region so that chroma upsampling at its edge sees the same neighbours as in the
// whole.
constexpr int kMargin = 4;

// Whether the file's markers lead to its end marker. libjpeg's releases treat a truncated file differently:
// some silently fill in what is missing. Compressed data cannot contain a marker (a 0xff in it is followed by
// a zero), so a truncated file has no end marker. Bytes after the end are ignored, and so are stray bytes
// between markers: libjpeg warns about those.
bool reaches_end(std::span<const std::uint8_t> bytes) {
  const std::uint8_t* at = bytes.data();
  const std::uint8_t* const end = at + bytes.size();
  while ((at = static_cast<const std::uint8_t*>(std::memchr(at, 0xff, static_cast<std::size_t>(end - at))))) {
    while (at < end && *at == 0xff) ++at;  // a marker may be preceded by any number of them
    if (at == end) return false;
    const std::uint8_t marker = *at++;
    if (marker == 0xd9) return true;
    if (marker <= 0x01 || (marker >= 0xd0 && marker <= 0xd8)) continue;  // no length follows these
    if (end - at < 2) return false;
    const int length = at[0] << 8 | at[1];
    if (end - at < length) return false;
    at += std::max(length, 2);
    if (at == end) return false;
  }
  return false;
}

}  // namespace

struct JpegReader::State {
  jpeg_error_mgr errors;  // first: libjpeg hands back a pointer to it
  std::jmp_buf escape;
  char message[JMSG_LENGTH_MAX];
  char warning[JMSG_LENGTH_MAX];
  bool truncated;
  std::span<const std::uint8_t> bytes;  // the open file
  jpeg_progress_mgr progress;
  jpeg_decompress_struct cinfo;

  static State& of(j_common_ptr cinfo) { return *static_cast<State*>(cinfo->client_data); }

  [[noreturn]] static void on_error(j_common_ptr cinfo) {
    State& state = of(cinfo);
    cinfo->err->format_message(cinfo, state.message);
    std::longjmp(state.escape, 1);
  }

  static void on_message(j_common_ptr cinfo, int level) {
    if (level >= 0) return;  // a trace, not a warning
    State& state = of(cinfo);
    if (cinfo->err->msg_code == JWRN_JPEG_EOF) state.truncated = true;
    if (cinfo->err->num_warnings++ == 0) cinfo->err->format_message(cinfo, state.warning);
  }

  static void on_progress(j_common_ptr cinfo) {
    if (!cinfo->is_decompressor) return;
    if (reinterpret_cast<j_decompress_ptr>(cinfo)->input_scan_number <= kMaxScans) return;
    State& state = of(cinfo);
    std::snprintf(state.message, sizeof(state.message), "more than %d scans", kMaxScans);
    std::longjmp(state.escape, 1);
  }

  // Runs a function that calls libjpeg. An error inside jumps back here, past the function's frame: it may
  // hold nothing that needs a destructor.
  template <typename Function>
  void guarded(Function&& function) {
    if (setjmp(escape) == 0) {
      function();
      return;
    }
    jpeg_abort_decompress(&cinfo);
    throw DataError("JPEG: {}", static_cast<const char*>(message));
  }
};

JpegReader::JpegReader() : state_(std::make_unique<State>()) {
  State& s = *state_;
  s.cinfo.err = jpeg_std_error(&s.errors);
  s.errors.error_exit = State::on_error;
  s.errors.emit_message = State::on_message;
  s.errors.output_message = [](j_common_ptr) {};
  s.cinfo.client_data = &s;
  s.guarded([&s] { jpeg_create_decompress(&s.cinfo); });
  s.progress = {};
  s.progress.progress_monitor = State::on_progress;
  s.cinfo.progress = &s.progress;
}

JpegReader::~JpegReader() { jpeg_destroy_decompress(&state_->cinfo); }

ImageInfo JpegReader::open(std::span<const std::uint8_t> bytes) {
  State& s = *state_;
  s.bytes = bytes;
  s.warning[0] = '\0';
  s.truncated = false;
  s.guarded([&] {
    jpeg_abort_decompress(&s.cinfo);  // whatever the image before left open
    s.errors.num_warnings = 0;
    jpeg_mem_src(&s.cinfo, bytes.data(), bytes.size());
    jpeg_read_header(&s.cinfo, TRUE);
  });
  ImageInfo info;
  info.format = ImageFormat::jpeg;
  info.width = static_cast<int>(s.cinfo.image_width);
  info.height = static_cast<int>(s.cinfo.image_height);
  info.channels = s.cinfo.num_components;
  return info;
}

bool JpegReader::plain() const {
  const jpeg_decompress_struct& cinfo = state_->cinfo;
  if (cinfo.progressive_mode || cinfo.arith_code || cinfo.data_precision != 8) return false;
  if (cinfo.comps_in_scan != cinfo.num_components) return false;
  const jpeg_component_info* parts = cinfo.comp_info;
  if (cinfo.num_components == 3) {
    const bool halved = parts[0].h_samp_factor <= 2 && parts[0].v_samp_factor <= 2;
    if (cinfo.jpeg_color_space != JCS_YCbCr || !halved) return false;
    for (int i = 1; i < 3; ++i) {
      if (parts[i].h_samp_factor != 1 || parts[i].v_samp_factor != 1) return false;
    }
  } else if (cinfo.num_components != 1 || cinfo.jpeg_color_space != JCS_GRAYSCALE) {
    return false;
  }
  return reaches_end(state_->bytes);
}

Pixels JpegReader::read(const Rect& region, int shrink, std::vector<std::uint8_t>& storage) {
  State& s = *state_;
  jpeg_decompress_struct& cinfo = s.cinfo;
  if (!reaches_end(s.bytes)) throw DataError("JPEG: the file is cut off");
  const bool cmyk = cinfo.jpeg_color_space == JCS_CMYK || cinfo.jpeg_color_space == JCS_YCCK;
  if (cinfo.jpeg_color_space == JCS_UNKNOWN)
    throw DataError("JPEG: unsupported: {} colour components", cinfo.num_components);

  JDIMENSION left = 0, columns = 0;
  s.guarded([&] {
    cinfo.out_color_space = cmyk ? JCS_CMYK : JCS_RGB;
    cinfo.scale_num = static_cast<unsigned>(8 / shrink);
    cinfo.scale_denom = 8;
    jpeg_start_decompress(&cinfo);
    const int x0 = std::max(0, region.x / shrink - kMargin);
    const int x1 = std::min(static_cast<int>(cinfo.output_width),
                            (region.x + region.width + shrink - 1) / shrink + kMargin);
    left = static_cast<JDIMENSION>(x0);
    columns = static_cast<JDIMENSION>(x1 - x0);
    if (columns < cinfo.output_width) jpeg_crop_scanline(&cinfo, &left, &columns);
  });
  const int top = std::max(0, region.y / shrink - kMargin);
  const int bottom = std::min(static_cast<int>(cinfo.output_height),
                              (region.y + region.height + shrink - 1) / shrink + kMargin);
  const std::size_t row_bytes =
      std::size_t{cinfo.output_width} * static_cast<std::size_t>(cinfo.out_color_components);
  const std::size_t needed = row_bytes * static_cast<std::size_t>(bottom - top);
  if (storage.size() < needed) storage.resize(needed);

  s.guarded([&] {
    if (top > 0) jpeg_skip_scanlines(&cinfo, static_cast<JDIMENSION>(top));
    JSAMPROW rows[8];
    while (static_cast<int>(cinfo.output_scanline) < bottom) {
      const int first = static_cast<int>(cinfo.output_scanline) - top;
      const int wanted = std::min<int>(8, bottom - top - first);
      for (int i = 0; i < wanted; ++i)
        rows[i] = storage.data() + row_bytes * static_cast<std::size_t>(first + i);
      jpeg_read_scanlines(&cinfo, rows, static_cast<JDIMENSION>(wanted));
    }
    if (cinfo.output_scanline == cinfo.output_height)
      jpeg_finish_decompress(&cinfo);
    else
      jpeg_abort_decompress(&cinfo);
  });
  if (s.truncated) throw DataError("JPEG: the file is cut off");

  Pixels out;
  out.data = storage.data();
  out.width = static_cast<int>(columns);
  out.height = bottom - top;
  out.stride = static_cast<std::ptrdiff_t>(row_bytes);
  out.shrink = shrink;
  out.origin_x = static_cast<int>(left);
  out.origin_y = top;
  if (cmyk) {
    // Stored inverted: 255 is no ink. In place, since three bytes never overtake four.
    for (int y = 0; y < out.height; ++y) {
      std::uint8_t* to = storage.data() + row_bytes * static_cast<std::size_t>(y);
      const std::uint8_t* from = to;
      for (int x = 0; x < out.width; ++x, from += 4, to += 3) {
        const int k = from[3];
        for (int c = 0; c < 3; ++c) to[c] = static_cast<std::uint8_t>((from[c] * k + 127) / 255);
      }
    }
  }
  return out;
}

void JpegReader::examine(std::vector<std::uint8_t>& storage) {
  State& s = *state_;
  jpeg_decompress_struct& cinfo = s.cinfo;
  if (!reaches_end(s.bytes)) throw DataError("JPEG: the file is cut off");
  if (cinfo.jpeg_color_space == JCS_UNKNOWN)
    throw DataError("JPEG: unsupported: {} colour components", cinfo.num_components);
  s.guarded([&] {
    cinfo.out_color_space = cinfo.jpeg_color_space;  // no conversion
    cinfo.scale_num = cinfo.scale_denom = 8;
    jpeg_start_decompress(&cinfo);
  });
  const std::size_t row_bytes =
      std::size_t{cinfo.output_width} * static_cast<std::size_t>(cinfo.out_color_components);
  if (storage.size() < row_bytes) storage.resize(row_bytes);
  s.guarded([&] {
    JSAMPROW row = storage.data();
    while (cinfo.output_scanline < cinfo.output_height) jpeg_read_scanlines(&cinfo, &row, 1);
    jpeg_finish_decompress(&cinfo);
  });
  if (s.truncated) throw DataError("JPEG: the file is cut off");
}

bool JpegReader::keeps_coefficients() const { return jpeg_has_multiple_scans(&state_->cinfo) == TRUE; }

void JpegReader::release() { jpeg_abort_decompress(&state_->cinfo); }

std::string JpegReader::warning() const { return state_->warning; }

}  // namespace redline::data
