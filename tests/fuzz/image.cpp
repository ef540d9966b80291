// Decodes any bytes as an image, whole and in part: pixels or DataError, nothing else.
#include <cstdint>

#include "base/error.h"
#include "data/decode.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  using namespace redline::data;
  Decoder decoder({1 << 20});
  for (const int shrink : {1, 4}) {
    try {
      const ImageInfo info = decoder.open({bytes, size});
      const Rect part{info.width / 3, info.height / 3, info.width - info.width / 3,
                      info.height - info.height / 3};
      const Pixels pixels = decoder.decode(part, shrink);
      if (pixels.width <= 0 || pixels.height <= 0) __builtin_trap();
    } catch (const redline::DataError&) {
    }
  }
  return 0;
}
