// JPEGs of every kind that libjpeg writes, for tests.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

// jpeglib.h needs size_t and FILE declared before it.
#include <jpeglib.h>

#include "data/pictures.h"

namespace redline::data {

struct JpegKind {
  const char* name = "420";
  int across = 2, down = 2;  // luma samples for one of chroma
  bool grey = false, cmyk = false, progressive = false;
  int restart_rows = 0;
};

inline std::vector<std::uint8_t> write_jpeg(const Picture& picture, const JpegKind& kind, int quality = 90) {
  jpeg_compress_struct cinfo;
  jpeg_error_mgr errors;
  cinfo.err = jpeg_std_error(&errors);
  jpeg_create_compress(&cinfo);
  unsigned char* memory = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&cinfo, &memory, &size);
  cinfo.image_width = static_cast<JDIMENSION>(picture.width);
  cinfo.image_height = static_cast<JDIMENSION>(picture.height);
  cinfo.input_components = kind.grey ? 1 : kind.cmyk ? 4 : 3;
  cinfo.in_color_space = kind.grey ? JCS_GRAYSCALE : kind.cmyk ? JCS_CMYK : JCS_RGB;
  jpeg_set_defaults(&cinfo);
  jpeg_set_quality(&cinfo, quality, TRUE);
  if (!kind.grey && !kind.cmyk) {
    cinfo.comp_info[0].h_samp_factor = kind.across;
    cinfo.comp_info[0].v_samp_factor = kind.down;
  }
  cinfo.restart_in_rows = kind.restart_rows;
  if (kind.progressive) jpeg_simple_progression(&cinfo);
  jpeg_start_compress(&cinfo, TRUE);
  std::vector<std::uint8_t> row(static_cast<std::size_t>(picture.width) * 4);
  while (cinfo.next_scanline < cinfo.image_height) {
    const std::uint8_t* from =
        picture.rgb.data() + std::size_t{cinfo.next_scanline} * static_cast<std::size_t>(picture.width) * 3;
    std::uint8_t* to = row.data();
    for (int x = 0; x < picture.width; ++x, from += 3) {
      *to++ = from[0];
      if (!kind.grey) *to++ = from[1];
      if (!kind.grey) *to++ = from[2];
      if (kind.cmyk) *to++ = 255;
    }
    JSAMPROW rows[] = {row.data()};
    jpeg_write_scanlines(&cinfo, rows, 1);
  }
  jpeg_finish_compress(&cinfo);
  jpeg_destroy_compress(&cinfo);
  std::vector<std::uint8_t> bytes(memory, memory + size);
  std::free(memory);
  return bytes;
}

}  // namespace redline::data
