// Reads any bytes as the header of a safetensors file: every tensor lies inside the data, or DataError.
#include <cstdint>

#include "base/error.h"
#include "weights/safetensors_header.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  using namespace redline::weights;
  if (size < 2) return 0;
  const std::uint64_t data_bytes = bytes[0] | bytes[1] << 8;
  try {
    const Header header = parse_header({reinterpret_cast<const char*>(bytes) + 2, size - 2}, data_bytes);
    for (const Entry& entry : header.entries) {
      if (entry.offset > data_bytes || entry.bytes > data_bytes - entry.offset) __builtin_trap();
    }
  } catch (const redline::DataError&) {
  }
  return 0;
}
