// Reads any bytes as the classes of ImageNet's validation images.
#include <cstdint>

#include "base/error.h"
#include "data/sources/devkit.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  try {
    redline::data::parse_ground_truth({reinterpret_cast<const char*>(bytes), size});
  } catch (const redline::DataError&) {
  }
  return 0;
}
