// Decodes any bytes as an image, in part, to pixels and to planes: pixels or DataError, nothing else.
#include <cstdint>
#include <vector>

#include "base/error.h"
#include "data/images/decode.h"
#include "data/images/resize.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  using namespace redline::data;
  using redline::Interpolation;
  Decoder decoder({1 << 20});
  Resizer resizer;
  std::vector<std::uint8_t> out(16 * 16 * 3);
  for (const int shrink : {1, 2, 4, 8}) {
    try {
      const ImageInfo info = decoder.open({bytes, size});
      const Rect part{info.width / 3, info.height / 3, info.width - info.width / 3,
                      info.height - info.height / 3};
      if (Planes planes; decoder.decode_planes(part, shrink, planes)) {
        const Box box{double(part.x), double(part.y), double(part.width), double(part.height)};
        resizer.resize(planes, box, 16, 16, Interpolation::bilinear, shrink == 2, out.data());
      }
      const Pixels pixels = decoder.decode(part, shrink);
      if (pixels.width <= 0 || pixels.height <= 0) __builtin_trap();
    } catch (const redline::DataError&) {
    }
  }
  return 0;
}
