// Reads any bytes as the annotation of an image: boxes with an area inside it, or DataError.
#include <cstdint>

#include "base/error.h"
#include "data/sources/boxes.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  try {
    for (const auto& [name, box] :
         redline::data::parse_annotation({reinterpret_cast<const char*>(bytes), size}))
      if (!(box.xmin >= 0 && box.xmin < box.xmax && box.xmax <= 1 && box.ymin >= 0 && box.ymin < box.ymax &&
            box.ymax <= 1))
        __builtin_trap();
  } catch (const redline::DataError&) {
  }
  return 0;
}
