#include "backend/cuda/kernels/tile_launch.h"

#include <cudaTypedefs.h>

#include <array>
#include <span>

namespace redline::backend::cuda {
namespace {

// Dimensions from the fastest on, and the box of them that one copy moves.
CUtensorMap describe(const void* data, Type type, std::span<const std::int64_t> size,
                     std::span<const int> box) {
  static const auto encode = [] {
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult found{};
    cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &found);
    return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(entry);
  }();
  CUtensorMap map{};
  if (encode == nullptr || data == nullptr) return map;
  constexpr std::size_t kMost = 5;
  std::array<cuuint64_t, kMost> sizes{}, strides{};
  std::array<cuuint32_t, kMost> boxes{}, steps{};
  cuuint64_t bytes = 2;  // of an element
  for (std::size_t i = 0; i < size.size(); ++i) {
    sizes[i] = static_cast<cuuint64_t>(size[i]);
    boxes[i] = static_cast<cuuint32_t>(box[i]);
    steps[i] = 1;
    bytes *= sizes[i];
    strides[i] = bytes;  // of the next dimension
  }
  encode(&map, type == Type::f16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
         static_cast<cuuint32_t>(size.size()), const_cast<void*>(data), sizes.data(), strides.data(),
         boxes.data(), steps.data(), CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
         // A box has rows of at most 128 bytes, and the box next to it is read soon: faster than 128B.
         CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return map;
}

constexpr int kBoxChannels = 64;

}  // namespace

CUtensorMap describe_rows(const void* data, Type type, std::int64_t rows, int columns, int box_rows) {
  return describe(data, type, std::array<std::int64_t, 2>{columns, rows},
                  std::array<int, 2>{kBoxChannels, box_rows});
}

CUtensorMap describe_images(const void* data, Type type, const ImageShape& shape, int box_columns,
                            int box_rows) {
  return describe(data, type, std::array<std::int64_t, 4>{shape.channels, shape.w, shape.h, shape.images},
                  std::array<int, 4>{kBoxChannels, box_columns, box_rows, 1});
}

}  // namespace redline::backend::cuda
