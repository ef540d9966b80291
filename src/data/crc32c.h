// CRC-32C (Castagnoli), and the masked form that TFRecord files carry.
#pragma once

#include <cstdint>
#include <span>

namespace redline::data {

std::uint32_t crc32c(std::span<const std::uint8_t> bytes);

// TFRecord stores a CRC rotated and offset, so that the CRC of data that holds CRCs stays meaningful.
std::uint32_t masked_crc32c(std::span<const std::uint8_t> bytes);

}  // namespace redline::data
