// CRC-32C (Castagnoli), and the masked form that TFRecord files carry.
#pragma once

#include <cstdint>
#include <span>

namespace redline {

// `before` is the CRC of what came before these bytes, for content that comes in parts.
std::uint32_t crc32c(std::span<const std::uint8_t> bytes, std::uint32_t before = 0);

// TFRecord stores a CRC rotated and offset, so that the CRC of data that holds CRCs stays meaningful.
std::uint32_t masked_crc32c(std::span<const std::uint8_t> bytes);

}  // namespace redline
