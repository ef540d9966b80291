#include "tensor_core.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "device.h"

namespace redline::emulator {
namespace {

constexpr std::size_t kMatrixRow = 16;  // bytes

// --- Barriers ---

// As it lies in the 64 bits of a barrier.
struct Phase {
  std::int32_t bytes;  // still to come
  std::uint16_t arrivals, missing;
  std::uint16_t parity_of() const { return arrivals >> 15; }
};
static_assert(sizeof(Phase) == sizeof(std::uint64_t));
constexpr std::uint16_t kParity = 0x8000, kCount = 0x7FFF;

Phase read(const std::uint64_t* barrier) {
  Phase phase;
  std::memcpy(&phase, barrier, sizeof phase);
  return phase;
}
// Goes over to the next phase where nothing is missing.
void write(std::uint64_t* barrier, Phase phase) {
  if (phase.missing == 0 && phase.bytes == 0) {
    phase.arrivals ^= kParity;
    phase.missing = phase.arrivals & kCount;
  }
  std::memcpy(barrier, &phase, sizeof phase);
}

// --- TMA ---

constexpr int kMostRank = 5;
// As it lies in a CUtensorMap.
struct Tensor {
  std::byte* data;
  std::int64_t size[kMostRank], stride[kMostRank - 1];  // strides in bytes, of all but the first dimension
  std::uint16_t box[kMostRank];
  std::uint8_t rank, element;
  bool swizzled;
};
static_assert(sizeof(Tensor) <= sizeof(CUtensorMap));

// Swizzling exchanges chunks of sixteen bytes within rows of 128, by the row's address.
std::uint32_t swizzle(std::uint32_t address) { return address ^ (address >> 7 & 7U) << 4; }

// Calls move(memory or null, shared memory) for every element of a box.
template <typename Move>
std::size_t for_each_element(const CUtensorMap& map, std::initializer_list<int> at, const void* shared,
                             const Move& move) {
  Tensor tensor;
  std::memcpy(&tensor, &map, sizeof tensor);
  check(tensor.rank == at.size(), "a copy of rank {} by a tensor map of rank {}", at.size(), tensor.rank);
  const std::uint32_t base = shared_address(shared);
  check(base % 128 == 0, "TMA: shared memory at {} is not aligned", base);
  std::int64_t total = 1;
  for (int i = 0; i < tensor.rank; ++i) total *= tensor.box[i];
  for (std::int64_t n = 0; n < total; ++n) {
    std::int64_t rest = n, offset = 0;
    bool inside = true;
    for (int i = 0; i < tensor.rank; ++i) {
      const std::int64_t position = at.begin()[i] + rest % tensor.box[i];
      rest /= tensor.box[i];
      inside = inside && position >= 0 && position < tensor.size[i];
      offset += position * (i == 0 ? tensor.element : tensor.stride[i - 1]);
    }
    const auto address = base + static_cast<std::uint32_t>(n * tensor.element);
    move(inside ? tensor.data + offset : nullptr,
         shared_pointer(tensor.swizzled ? swizzle(address) : address), std::size_t{tensor.element});
  }
  return static_cast<std::size_t>(total) * tensor.element;
}

// --- Matrices ---

// Where a lane's two elements of an 8 x 8 matrix are.
struct Two {
  int row, column;  // of the first; the second is in the next column
};
Two of_lane(int lane) { return {lane / 4, lane % 4 * 2}; }

struct Rows {
  std::byte* row;            // that this lane names
  std::uint32_t* registers;  // four
};

// Calls visit(16 bits of a register, 16 bits in shared memory) for all entries of four matrices.
template <typename Visit>
void for_each_entry(std::span<void* const> lanes, bool transposed, const Visit& visit) {
  for (int lane = 0; lane < kWarp; ++lane) {
    const auto* own = static_cast<const Rows*>(lanes[static_cast<std::size_t>(lane)]);
    check(own != nullptr, "a matrix is moved by less than a warp");
    for (int matrix = 0; matrix < 4; ++matrix) {
      for (int i = 0; i < 2; ++i) {
        int row = of_lane(lane).row, column = of_lane(lane).column + i;
        if (transposed) std::swap(row, column);
        const auto* named = static_cast<const Rows*>(lanes[static_cast<std::size_t>(8 * matrix + row)]);
        visit(reinterpret_cast<std::uint16_t*>(own->registers + matrix) + i,
              reinterpret_cast<std::uint16_t*>(named->row) + column);
      }
    }
  }
}

struct Product {
  float* d;
  const std::uint32_t* a;  // four registers, or null
};

// The rows of one warp.
void multiply(std::span<void* const> lanes, int first_row, int sums, const Matrix* a,
              const float (&right)[16][256], bool add, ToFloat to_float) {
  constexpr int kRows = 16, kDepth = 16;
  const int columns = 2 * sums;
  float left[kRows][kDepth];
  static float out[kRows][256];
  const auto given = [&](int lane) {
    return static_cast<const Product*>(lanes[static_cast<std::size_t>(lane)]);
  };
  for (int lane = 0; lane < kWarp; ++lane) {
    check(given(lane) != nullptr, "a product by less than four warps");
    for (int i = 0; i < 8; ++i) {
      const int row = lane / 4 + i / 2 % 2 * 8, column = lane % 4 * 2 + i / 4 * 8 + i % 2;
      left[row][column] =
          to_float(a != nullptr ? a->at(first_row + row, column)
                                : static_cast<std::uint16_t>(given(lane)->a[i / 2] >> 16 * (i % 2)));
    }
  }
  for (int row = 0; row < kRows; ++row) {
    std::fill_n(out[row], columns, 0.0F);
    for (int k = 0; k < kDepth; ++k) {
      for (int column = 0; column < columns; ++column) out[row][column] += left[row][k] * right[k][column];
    }
  }
  for (int lane = 0; lane < kWarp; ++lane) {
    float* d = given(lane)->d;
    for (int i = 0; i < sums; ++i) {
      const float sum = out[lane / 4 + i / 2 % 2 * 8][i / 4 * 8 + lane % 4 * 2 + i % 2];
      d[i] = add ? d[i] + sum : sum;
    }
  }
}

void multiply(std::span<void* const> threads, int sums, const Matrix* a, const Matrix& b, bool add,
              ToFloat to_float) {
  static float right[16][256];
  for (int k = 0; k < 16; ++k) {
    for (int column = 0; column < 2 * sums; ++column) right[k][column] = to_float(b.at(column, k));
  }
  for (int warp = 0; warp < kWarpGroup / kWarp; ++warp)
    multiply(threads.subspan(static_cast<std::size_t>(warp * kWarp), kWarp), 16 * warp, sums, a, right, add,
             to_float);
}

}  // namespace

void barrier_init(std::uint64_t* barrier, unsigned arrivals) {
  const Phase phase{0, static_cast<std::uint16_t>(arrivals), static_cast<std::uint16_t>(arrivals)};
  std::memcpy(barrier, &phase, sizeof phase);
}
void barrier_arrive(std::uint64_t* barrier) {
  Phase phase = read(barrier);
  check(phase.missing > 0, "more arrivals at a barrier than it was made for");
  --phase.missing;
  write(barrier, phase);
}
void barrier_expect(std::uint64_t* barrier, unsigned bytes) {
  Phase phase = read(barrier);
  phase.bytes += static_cast<std::int32_t>(bytes);
  std::memcpy(barrier, &phase, sizeof phase);
}
void barrier_complete(std::uint64_t* barrier, unsigned bytes) {
  Phase phase = read(barrier);
  phase.bytes -= static_cast<std::int32_t>(bytes);
  write(barrier, phase);
}
void barrier_wait(std::uint64_t* barrier, unsigned parity) {
  wait_for("at a barrier in shared memory", [=] { return read(barrier).parity_of() != parity; });
}

void load_box(void* to, const CUtensorMap& map, std::initializer_list<int> at, std::uint64_t* barrier) {
  const std::size_t bytes =
      for_each_element(map, at, to, [](const std::byte* memory, std::byte* shared, std::size_t element) {
        if (memory == nullptr)
          std::memset(shared, 0, element);
        else
          std::memcpy(shared, memory, element);
      });
  check_fenced(to, bytes, Access::tma_writes);
  barrier_complete(barrier, static_cast<unsigned>(bytes));
}
void store_box(const CUtensorMap& map, std::initializer_list<int> at, const void* from) {
  const std::size_t bytes =
      for_each_element(map, at, from, [](std::byte* memory, const std::byte* shared, std::size_t element) {
        if (memory != nullptr) std::memcpy(memory, shared, element);
      });
  check_fenced(from, bytes, Access::tma_reads);
}
void check_bulk(const void* to, const void* from, unsigned bytes) {
  const auto low = reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(from) | bytes;
  check(low % 16 == 0, "a bulk copy of {} bytes is not aligned to sixteen", bytes);
}

void load_matrices(std::uint32_t (&to)[4], const void* row, bool transposed) {
  touch(row, kMatrixRow, /*writes=*/false);
  Rows own{static_cast<std::byte*>(const_cast<void*>(row)), to};
  by_warp(&own, [=](std::span<void* const> lanes) {
    for_each_entry(lanes, transposed,
                   [](std::uint16_t* registers, const std::uint16_t* shared) { *registers = *shared; });
  });
}
void store_matrices(void* row, const std::uint32_t (&from)[4], bool transposed) {
  touch(row, kMatrixRow, /*writes=*/true);
  Rows own{static_cast<std::byte*>(row), const_cast<std::uint32_t*>(from)};
  by_warp(&own, [=](std::span<void* const> lanes) {
    for_each_entry(lanes, transposed,
                   [](const std::uint16_t* registers, std::uint16_t* shared) { *shared = *registers; });
  });
}

std::uint16_t Matrix::at(int row, int k) const {
  const auto field = [this](int from) {
    return static_cast<std::uint32_t>(descriptor >> from & 0x3FFFU) << 4;
  };
  const std::uint32_t start = field(0), leading = field(16), stride = field(32);
  const bool is_swizzled = descriptor >> 62 == 1;
  const auto r = static_cast<std::uint32_t>(row), c = static_cast<std::uint32_t>(k);
  std::uint32_t address = start;
  if (is_swizzled)
    address += transposed ? r / 64 * leading + c / 8 * stride + c % 8 * 128 + r % 64 * 2
                          : r / 8 * stride + r % 8 * 128 + c * 2;
  else
    address += transposed ? r / 8 * stride + c / 8 * leading + c % 8 * 16 + r % 8 * 2
                          : r / 8 * stride + c / 8 * leading + r % 8 * 16 + c % 8 * 2;
  const std::byte* from = shared_pointer(is_swizzled ? swizzle(address) : address);
  std::uint16_t bits = 0;
  check_fenced(from, sizeof bits, Access::wgmma_reads);
  std::memcpy(&bits, from, sizeof bits);
  return bits;
}

void multiply(float* d, int sums, const Matrix& a, const Matrix& b, bool add, ToFloat to_float) {
  Product own{d, nullptr};
  by_warp_group(&own, [&](std::span<void* const> threads) { multiply(threads, sums, &a, b, add, to_float); });
}
void multiply(float* d, int sums, const std::uint32_t (&a)[4], const Matrix& b, bool add, ToFloat to_float) {
  Product own{d, a};
  by_warp_group(&own,
                [&](std::span<void* const> threads) { multiply(threads, sums, nullptr, b, add, to_float); });
}

}  // namespace redline::emulator

// What a kernel's host code describes tensors with.
extern "C" CUresult redline_emulator_encode_tiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank,
                                                  void* data, const cuuint64_t* size,
                                                  const cuuint64_t* strides, const cuuint32_t* box,
                                                  const cuuint32_t*, CUtensorMapInterleave,
                                                  CUtensorMapSwizzle swizzle, CUtensorMapL2promotion,
                                                  CUtensorMapFloatOOBfill) {
  using redline::emulator::Tensor;
  Tensor tensor{};
  tensor.data = static_cast<std::byte*>(data);
  tensor.rank = static_cast<std::uint8_t>(rank);
  tensor.element = type == CU_TENSOR_MAP_DATA_TYPE_UINT8     ? 1
                   : type == CU_TENSOR_MAP_DATA_TYPE_FLOAT32 ? 4
                                                             : 2;
  tensor.swizzled = swizzle == CU_TENSOR_MAP_SWIZZLE_128B;
  for (cuuint32_t i = 0; i < rank; ++i) {
    tensor.size[i] = static_cast<std::int64_t>(size[i]);
    tensor.box[i] = static_cast<std::uint16_t>(box[i]);
    if (i + 1 < rank) tensor.stride[i] = static_cast<std::int64_t>(strides[i]);
    redline::check(i + 1 >= rank || strides[i] % 16 == 0, "TMA: a stride of {} bytes", strides[i]);
  }
  redline::check(!tensor.swizzled || box[0] * tensor.element <= 128,
                 "TMA: a swizzled box is wider than 128 bytes");
  std::memcpy(map, &tensor, sizeof tensor);
  return CUDA_SUCCESS;
}
