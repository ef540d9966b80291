#include "graph/half_arrays.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "base/error.h"
#include "graph/half.h"

namespace redline::graph {
namespace {

struct ScalarF16 {
  static float load(std::uint16_t bits) { return f16_to_float(bits); }
  static std::uint16_t store(float value) { return float_to_f16(value); }
};

struct ScalarBf16 {
  static float load(std::uint16_t bits) { return bf16_to_float(bits); }
  static std::uint16_t store(float value) { return float_to_bf16(value); }
};

#if defined(__x86_64__)
#define REDLINE_AVX2 [[gnu::target("avx2,f16c")]]
constexpr std::size_t kLanes = 8;

struct VectorF16 : ScalarF16 {
  REDLINE_AVX2 static __m256 load_many(const std::uint16_t* from) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  }
  REDLINE_AVX2 static void store_many(__m256 values, std::uint16_t* to) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT));
  }
};

struct VectorBf16 : ScalarBf16 {
  REDLINE_AVX2 static __m256 load_many(const std::uint16_t* from) {
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
  }
  REDLINE_AVX2 static void store_many(__m256 values, std::uint16_t* to) {
    const __m256i bits = _mm256_castps_si256(values), upper = _mm256_srli_epi32(bits, 16);
    const __m256i odd = _mm256_and_si256(upper, _mm256_set1_epi32(1));
    const __m256i half = _mm256_add_epi32(_mm256_set1_epi32(0x7fff), odd);
    const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, half), 16);
    const __m256i quiet = _mm256_or_si256(upper, _mm256_set1_epi32(0x40));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(values, values, _CMP_UNORD_Q));
    const __m256i words = _mm256_blendv_epi8(rounded, quiet, nan);
    // Packs within each 128-bit lane: the halves wanted are the first and the third quarter.
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(words, words), 0b1000);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_castsi256_si128(packed));
  }
};

// Each returns how many values it converted: all but a few at the end.
template <typename Type>
REDLINE_AVX2 std::size_t to_vectors(const float* from, std::uint16_t* to, std::size_t count) {
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) Type::store_many(_mm256_loadu_ps(from + i), to + i);
  return i;
}

template <typename Type>
REDLINE_AVX2 std::size_t from_vectors(const std::uint16_t* from, float* to, std::size_t count) {
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) _mm256_storeu_ps(to + i, Type::load_many(from + i));
  return i;
}

template <typename Type>
REDLINE_AVX2 std::size_t add_vectors(const std::uint16_t* a, const std::uint16_t* b, std::uint16_t* sums,
                                     std::size_t count) {
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    Type::store_many(_mm256_add_ps(Type::load_many(a + i), Type::load_many(b + i)), sums + i);
  return i;
}
#undef REDLINE_AVX2

// The level x86-64-v3, which includes f16c; not every compiler can test for f16c alone.
bool has_vectors() {
  static const bool found =
      __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
  return found;
}
#else
using VectorF16 = ScalarF16;
using VectorBf16 = ScalarBf16;
template <typename Type>
std::size_t to_vectors(const float*, std::uint16_t*, std::size_t) {
  return 0;
}
template <typename Type>
std::size_t from_vectors(const std::uint16_t*, float*, std::size_t) {
  return 0;
}
template <typename Type>
std::size_t add_vectors(const std::uint16_t*, const std::uint16_t*, std::uint16_t*, std::size_t) {
  return 0;
}
bool has_vectors() { return false; }
#endif

// Calls work with the type's conversions.
template <typename Work>
void with_type(DType type, const Work& work) {
  check(type == DType::f16 || type == DType::bf16, "{} is not a 16-bit type", name_of(type));
  if (type == DType::f16)
    work(VectorF16{});
  else
    work(VectorBf16{});
}

}  // namespace

void to_halves(DType type, const float* from, std::uint16_t* to, std::size_t count) {
  with_type(type, [&]<typename Type>(Type) {
    for (std::size_t i = has_vectors() ? to_vectors<Type>(from, to, count) : 0; i < count; ++i)
      to[i] = Type::store(from[i]);
  });
}

void from_halves(DType type, const std::uint16_t* from, float* to, std::size_t count) {
  with_type(type, [&]<typename Type>(Type) {
    for (std::size_t i = has_vectors() ? from_vectors<Type>(from, to, count) : 0; i < count; ++i)
      to[i] = Type::load(from[i]);
  });
}

void add_halves(DType type, const std::uint16_t* a, const std::uint16_t* b, std::uint16_t* sums,
                std::size_t count) {
  with_type(type, [&]<typename Type>(Type) {
    for (std::size_t i = has_vectors() ? add_vectors<Type>(a, b, sums, count) : 0; i < count; ++i)
      sums[i] = Type::store(Type::load(a[i]) + Type::load(b[i]));
  });
}

}  // namespace redline::graph
