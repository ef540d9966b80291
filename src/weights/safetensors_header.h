// The header of a safetensors file: the names, types, shapes and positions of its tensors.
//     u64 length of the header, little endian | header, JSON padded with spaces | the tensors in order
// The JSON has an entry per tensor, {"dtype": "F32", "shape": [64, 3, 7, 7], "data_offsets": [begin, end]},
// with offsets from the end of the header, and may have "__metadata__", an object of texts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace redline::weights {

// The element types of the format, except the 8-bit floating-point ones.
enum class ElementType : std::uint8_t { boolean, u8, i8, u16, i16, f16, bf16, u32, i32, f32, u64, i64, f64 };

std::size_t size_of(ElementType type);       // bytes of one element
std::string_view name_of(ElementType type);  // as the format writes it: "F32", "BF16", "I64"
bool is_floating(ElementType type);

using Dimensions = std::vector<std::int64_t>;  // outermost first; empty for a single number
using Metadata = std::map<std::string, std::string>;

std::string text_of(const Dimensions& shape);  // "64x3x7x7"; "scalar" for no dimension

struct Entry {
  std::string name;
  ElementType type = ElementType::f32;
  Dimensions shape;
  std::uint64_t offset = 0;  // from the first byte after the header
  std::uint64_t bytes = 0;

  std::uint64_t elements() const { return bytes / size_of(type); }
};

struct Header {
  std::vector<Entry> entries;  // as they lie in the file: each begins where the one before ends
  Metadata metadata;
};

// The longest header that is read; a ResNet-152's has 70 KB. The format itself allows 100 MB, but parsing
// that much untrusted JSON would take gigabytes.
inline constexpr std::uint64_t kMostHeaderBytes = std::uint64_t{16} << 20;

// Checks everything that a reader relies on: known types, sizes that match the shapes, tensors that fill
// `data_bytes` without gaps or overlap, and unique names. Throws DataError, which does not name the file.
Header parse_header(std::string_view json, std::uint64_t data_bytes);

// The first bytes of a file with these tensors, lengths included, padded to a multiple of 8. Offsets and
// sizes are computed from type and shape, and filled in in `entries`.
std::string header_bytes(std::vector<Entry>& entries, const Metadata& metadata);

}  // namespace redline::weights
