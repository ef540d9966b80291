// Reads any bytes as ImageNet's class list.
#include <cstdint>

#include "base/error.h"
#include "data/sources/devkit.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  try {
    redline::data::parse_meta({bytes, size});
  } catch (const redline::DataError&) {
  }
  return 0;
}
