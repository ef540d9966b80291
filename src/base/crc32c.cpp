#include "base/crc32c.h"

#include <algorithm>

#include <isa-l/crc.h>

namespace redline {

std::uint32_t crc32c(std::span<const std::uint8_t> bytes, std::uint32_t before) {
  constexpr std::size_t kMost = 1 << 30;  // the library counts in int
  std::uint32_t crc = ~before;
  for (std::size_t at = 0; at < bytes.size(); at += kMost) {
    const std::size_t size = std::min(kMost, bytes.size() - at);
    // It takes a pointer to mutable bytes, and only reads.
    crc = crc32_iscsi(const_cast<unsigned char*>(bytes.data() + at), static_cast<int>(size), crc);
  }
  return ~crc;
}

std::uint32_t masked_crc32c(std::span<const std::uint8_t> bytes) {
  const std::uint32_t crc = crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

}  // namespace redline
