// GIF's first frame by giflib. A frame smaller than its screen is surrounded by the transparent colour, or
// else by the first of the palette, as in Pillow.
#include <algorithm>
#include <cstring>
#include <memory>

#include <gif_lib.h>

#include "base/error.h"
#include "data/images/codecs.h"

namespace redline::data {
namespace {

struct Input {
  Bytes bytes;
  std::size_t at = 0;
};

int read_input(GifFileType* file, GifByteType* to, int count) {
  Input& input = *static_cast<Input*>(file->UserData);
  const std::size_t taken = std::min(static_cast<std::size_t>(count), input.bytes.size() - input.at);
  if (taken > 0) std::memcpy(to, input.bytes.data() + input.at, taken);
  input.at += taken;
  return static_cast<int>(taken);
}

[[noreturn]] void fail(int error) {
  const char* text = GifErrorString(error);
  throw DataError("GIF: {}", text != nullptr ? text : "damaged");
}

struct Close {
  void operator()(GifFileType* file) const { DGifCloseFile(file, nullptr); }
};
using GifFile = std::unique_ptr<GifFileType, Close>;

GifFile open_file(Input& input) {
  int error = 0;
  GifFile file(DGifOpen(&input, read_input, &error));
  if (!file) fail(error);
  return file;
}

// Goes to the first frame; gives its transparent colour, or -1.
int find_frame(GifFileType& file) {
  int transparent = -1;
  for (;;) {
    GifRecordType kind = UNDEFINED_RECORD_TYPE;
    if (DGifGetRecordType(&file, &kind) == GIF_ERROR) fail(file.Error);
    if (kind == TERMINATE_RECORD_TYPE) throw DataError("GIF: it has no picture");
    if (kind == IMAGE_DESC_RECORD_TYPE) {
      if (DGifGetImageDesc(&file) == GIF_ERROR) fail(file.Error);
      return transparent;
    }
    if (kind != EXTENSION_RECORD_TYPE) continue;
    int code = 0;
    GifByteType* block = nullptr;
    if (DGifGetExtension(&file, &code, &block) == GIF_ERROR) fail(file.Error);
    while (block != nullptr) {
      GraphicsControlBlock control;
      if (code == GRAPHICS_EXT_FUNC_CODE && block[0] == 4 &&
          DGifExtensionToGCB(4, block + 1, &control) == GIF_OK)
        transparent = control.TransparentColor;
      if (DGifGetExtensionNext(&file, &block) == GIF_ERROR) fail(file.Error);
    }
  }
}

// Rows in the order in which they are stored.
std::vector<int> row_order(int height, bool interlaced) {
  std::vector<int> rows;
  if (!interlaced) {
    for (int y = 0; y < height; ++y) rows.push_back(y);
    return rows;
  }
  constexpr int kPasses[4][2] = {{0, 8}, {4, 8}, {2, 4}, {1, 2}};
  for (const auto& [first, every] : kPasses)
    for (int y = first; y < height; y += every) rows.push_back(y);
  return rows;
}

}  // namespace

ImageInfo open_gif(Bytes bytes) {
  Input input{bytes};
  const GifFile file = open_file(input);
  return {ImageFormat::gif, file->SWidth, file->SHeight, 3};
}

void decode_gif(Bytes bytes, const ImageInfo& info, std::vector<std::uint8_t>& pixels) {
  Input input{bytes};
  const GifFile file = open_file(input);
  const int transparent = find_frame(*file);
  const GifImageDesc& frame = file->Image;
  if (frame.Width <= 0 || frame.Height <= 0 || frame.Left < 0 || frame.Top < 0 ||
      frame.Width > info.width - frame.Left || frame.Height > info.height - frame.Top)
    throw DataError("GIF: a frame outside its screen");
  const ColorMapObject* colors = frame.ColorMap != nullptr ? frame.ColorMap : file->SColorMap;
  if (colors == nullptr) throw DataError("GIF: it has no palette");
  std::uint8_t* rgb = room_for(info, 3, pixels);
  const auto put = [&](std::size_t at, int index) {
    const GifColorType color =
        index >= 0 && index < colors->ColorCount ? colors->Colors[index] : GifColorType{};
    rgb[3 * at] = color.Red;
    rgb[3 * at + 1] = color.Green;
    rgb[3 * at + 2] = color.Blue;
  };
  const auto width = static_cast<std::size_t>(info.width);
  if (frame.Width < info.width || frame.Height < info.height)
    for (std::size_t i = 0; i < width * static_cast<std::size_t>(info.height); ++i)
      put(i, std::max(0, transparent));
  std::vector<GifPixelType> line(static_cast<std::size_t>(frame.Width));
  for (const int y : row_order(frame.Height, frame.Interlace)) {
    if (DGifGetLine(file.get(), line.data(), frame.Width) == GIF_ERROR) fail(file->Error);
    const std::size_t row =
        static_cast<std::size_t>(frame.Top + y) * width + static_cast<std::size_t>(frame.Left);
    for (std::size_t x = 0; x < line.size(); ++x) put(row + x, line[x]);
  }
}

}  // namespace redline::data
