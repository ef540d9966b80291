#include "plan/layout.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "graph/half.h"

namespace redline::plan {
namespace {

using graph::DType;
using graph::Shape;

constexpr std::int64_t kBlock = 16;

std::int64_t blocks(std::int64_t channels) { return (channels + kBlock - 1) / kBlock; }

std::int64_t fours(std::int64_t channels) { return (channels + 3) / 4 * 4; }

constexpr std::int64_t kFoldedKernel = 7;
constexpr std::int64_t kFoldedBefore = 2;  // pairs of padding
constexpr std::int64_t kFold = 16;         // elements of two by two pixels of four channels

bool is_folded_kernel(const Shape& s) { return s[2] == kFoldedKernel && s[3] == kFoldedKernel; }

// Pairs of rows or columns as stored.
std::int64_t pairs(const Shape& s, std::int64_t size) {
  return (size + 1) / 2 + (is_folded_kernel(s) ? 0 : kFoldedBefore + 1);
}

// The offset of element (a, b, h, w) of a rank-4 tensor.
std::int64_t offset_of(const Shape& s, Layout layout, std::int64_t a, std::int64_t b, std::int64_t h,
                       std::int64_t w) {
  switch (layout) {
    case Layout::plain:
      return ((a * s[1] + b) * s[2] + h) * s[3] + w;
    case Layout::channels_last:
      return ((a * s[2] + h) * s[3] + w) * s[1] + b;
    case Layout::channels_last4:
      return ((a * s[2] + h) * s[3] + w) * fours(s[1]) + b;
    case Layout::folded: {
      const std::int64_t shift = is_folded_kernel(s) ? 1 : 2 * kFoldedBefore;
      const std::int64_t y = h + shift, x = w + shift;
      return ((a * pairs(s, s[2]) + y / 2) * pairs(s, s[3]) + x / 2) * kFold + (y % 2 * 2 + x % 2) * 4 + b;
    }
    case Layout::blocked16:
      return (((a * blocks(s[1]) + b / kBlock) * s[2] + h) * s[3] + w) * kBlock + b % kBlock;
    case Layout::weights16:
      if (s[1] < kBlock) return (((a / kBlock * s[2] + h) * s[3] + w) * s[1] + b) * kBlock + a % kBlock;
      return ((((a / kBlock * blocks(s[1]) + b / kBlock) * s[2] + h) * s[3] + w) * kBlock + b % kBlock) *
                 kBlock +
             a % kBlock;
  }
  throw InternalError("unknown layout {}", static_cast<int>(layout));
}

// Calls visit(plain position, stored position) for every element.
template <typename Visit>
void for_each_element(const Shape& shape, Layout layout, Visit visit) {
  if (shape.rank() != 4 || layout == Layout::plain) {
    for (std::int64_t i = 0; i < shape.elements(); ++i) visit(i, i);
    return;
  }
  std::int64_t plain = 0;
  for (std::int64_t a = 0; a < shape[0]; ++a)
    for (std::int64_t b = 0; b < shape[1]; ++b)
      for (std::int64_t h = 0; h < shape[2]; ++h)
        for (std::int64_t w = 0; w < shape[3]; ++w) visit(plain++, offset_of(shape, layout, a, b, h, w));
}

void put(DType dtype, std::byte* memory, std::int64_t at, float value) {
  const auto write = [&](auto typed) {
    std::memcpy(memory + at * static_cast<std::int64_t>(sizeof typed), &typed, sizeof typed);
  };
  switch (dtype) {
    case DType::f32:
      return write(value);
    case DType::bf16:
      return write(graph::float_to_bf16(value));
    case DType::f16:
      return write(graph::float_to_f16(value));
    case DType::u8:
      return write(static_cast<std::uint8_t>(value));
    case DType::i32:
      return write(static_cast<std::int32_t>(value));
  }
}

float get(DType dtype, const std::byte* memory, std::int64_t at) {
  const auto read = [&]<typename T>(T typed) {
    std::memcpy(&typed, memory + at * static_cast<std::int64_t>(sizeof typed), sizeof typed);
    return typed;
  };
  switch (dtype) {
    case DType::f32:
      return read(float{});
    case DType::bf16:
      return graph::bf16_to_float(read(std::uint16_t{}));
    case DType::f16:
      return graph::f16_to_float(read(std::uint16_t{}));
    case DType::u8:
      return static_cast<float>(read(std::uint8_t{}));
    case DType::i32:
      return static_cast<float>(read(std::int32_t{}));
  }
  throw InternalError("unknown dtype {}", static_cast<int>(dtype));
}

}  // namespace

std::string_view name_of(Layout layout) {
  switch (layout) {
    case Layout::plain:
      return "plain";
    case Layout::channels_last:
      return "channels_last";
    case Layout::channels_last4:
      return "channels_last4";
    case Layout::folded:
      return "folded";
    case Layout::blocked16:
      return "blocked16";
    case Layout::weights16:
      return "weights16";
  }
  throw InternalError("unknown layout {}", static_cast<int>(layout));
}

std::int64_t stored_elements(const Shape& shape, Layout layout) {
  if (shape.rank() != 4) return shape.elements();
  switch (layout) {
    case Layout::channels_last4:
      return shape[0] * fours(shape[1]) * shape[2] * shape[3];
    case Layout::folded:
      return shape[0] * pairs(shape, shape[2]) * pairs(shape, shape[3]) * kFold;
    case Layout::blocked16:
      return shape[0] * blocks(shape[1]) * kBlock * shape[2] * shape[3];
    case Layout::weights16: {
      const std::int64_t inputs = shape[1] < kBlock ? shape[1] : blocks(shape[1]) * kBlock;
      return blocks(shape[0]) * kBlock * inputs * shape[2] * shape[3];
    }
    default:
      return shape.elements();
  }
}

std::size_t stored_bytes(const graph::Tensor& tensor, Layout layout) {
  return static_cast<std::size_t>(stored_elements(tensor.shape, layout)) * graph::size_of(tensor.dtype);
}

void store(const graph::Tensor& tensor, Layout layout, std::span<const float> values, std::byte* memory) {
  check(static_cast<std::int64_t>(values.size()) == tensor.shape.elements(), "'{}' has {} elements, not {}",
        tensor.name, tensor.shape.elements(), values.size());
  if (stored_elements(tensor.shape, layout) != tensor.shape.elements()) {
    std::memset(memory, 0, stored_bytes(tensor, layout));
  }
  for_each_element(tensor.shape, layout, [&](std::int64_t plain, std::int64_t stored) {
    put(tensor.dtype, memory, stored, values[static_cast<std::size_t>(plain)]);
  });
}

void load(const graph::Tensor& tensor, Layout layout, const std::byte* memory, std::span<float> values) {
  check(static_cast<std::int64_t>(values.size()) == tensor.shape.elements(), "'{}' has {} elements, not {}",
        tensor.name, tensor.shape.elements(), values.size());
  for_each_element(tensor.shape, layout, [&](std::int64_t plain, std::int64_t stored) {
    values[static_cast<std::size_t>(plain)] = get(tensor.dtype, memory, stored);
  });
}

}  // namespace redline::plan
