#include "backend/cpu/memory_study.h"

#include <emmintrin.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "backend/cpu/threads.h"
#include "backend/memory_pattern.h"
#include "base/clock.h"
#include "base/error.h"

namespace redline::backend::cpu {
namespace {

enum class Pattern { copy, stream_copy, read, write, stream_write, triad, strided, random };

constexpr std::uint32_t kWritten = 0x5A5A5A5A;
constexpr float kFactor = 3;
constexpr std::size_t kLine = 16;  // words in a cache line

// What to do, on which processors, and which processors first touch the memory.
struct Recipe {
  Pattern pattern = Pattern::copy;
  std::uint64_t stride = 1;
  Threads workers, owners;
};

struct Range {
  std::size_t first, last;  // words
};

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};
using Words = std::unique_ptr<std::uint32_t[], Free>;

Words allocate(std::size_t bytes) {
  void* memory = std::aligned_alloc(kMemoryStep, bytes);
  if (memory == nullptr)
    throw UnavailableError("no memory for arrays of {} MiB: measure smaller --sizes", bytes >> 20);
  return Words(static_cast<std::uint32_t*>(memory));
}

// A small number that depends on the position, so that a triad is exact in fp32.
float small_number(std::size_t i) { return static_cast<float>(memory_word(i) & 0xFFFFU); }

template <bool kStream>
void store(std::uint32_t* to, __m128i value) {
  if constexpr (kStream)
    _mm_stream_si128(reinterpret_cast<__m128i*>(to), value);
  else
    _mm_store_si128(reinterpret_cast<__m128i*>(to), value);
}

template <bool kStream>
void write(std::uint32_t* to, Range range) {
  const __m128i value = _mm_set1_epi32(static_cast<int>(kWritten));
  for (std::size_t i = range.first; i < range.last; i += kLine) {
    for (std::size_t part = 0; part < kLine; part += 4) store<kStream>(to + i + part, value);
    // Else compilers see a memset, which chooses its stores by size.
    if constexpr (!kStream) asm volatile("" ::: "memory");
  }
  if constexpr (kStream) _mm_sfence();
}

void stream_copy(const std::uint32_t* from, std::uint32_t* to, Range range) {
  for (std::size_t i = range.first; i < range.last; i += 4)
    store<true>(to + i, _mm_load_si128(reinterpret_cast<const __m128i*>(from + i)));
  _mm_sfence();
}

// The sum of the words, as they overflow.
std::uint32_t read(const std::uint32_t* from, Range range) {
  __m128i sums[4] = {};
  for (std::size_t i = range.first; i < range.last; i += kLine) {
    for (std::size_t part = 0; part < 4; ++part)
      sums[part] =
          _mm_add_epi32(sums[part], _mm_load_si128(reinterpret_cast<const __m128i*>(from + i + 4 * part)));
  }
  alignas(16) std::uint32_t lanes[4];
  _mm_store_si128(reinterpret_cast<__m128i*>(lanes),
                  _mm_add_epi32(_mm_add_epi32(sums[0], sums[1]), _mm_add_epi32(sums[2], sums[3])));
  return lanes[0] + lanes[1] + lanes[2] + lanes[3];
}

void triad(const float* b, const float* c, float* a, Range range) {
  const __m128 factor = _mm_set1_ps(kFactor);
  for (std::size_t i = range.first; i < range.last; i += 4)
    _mm_store_ps(a + i, _mm_add_ps(_mm_load_ps(b + i), _mm_mul_ps(factor, _mm_load_ps(c + i))));
}

// Column by column: a division for each word would be what is measured.
void gather_strided(const std::uint32_t* from, std::uint32_t* to, Range range, std::size_t words,
                    std::size_t stride) {
  const std::size_t column = words / stride;
  for (std::size_t i = range.first; i < range.last;) {
    const std::size_t row = i / column, end = std::min(range.last, (row + 1) * column);
    const std::uint32_t* source = from + (i - row * column) * stride + row;
    for (; i < end; ++i, source += stride) to[i] = *source;
  }
}

class CpuMove final : public MemoryMove {
 public:
  CpuMove(const Recipe& recipe, std::size_t bytes)
      : recipe_(recipe), words_(bytes / sizeof(std::uint32_t)), from_(allocate(bytes)) {
    if (recipe.pattern == Pattern::triad) second_ = allocate(bytes);
    if (recipe.pattern != Pattern::read) to_ = allocate(bytes);
    const Threads::Lead lead(recipe_.owners);
    parallel_for(recipe_.owners.count(), [&](std::int64_t owner) {
      const Range range = share(owner, recipe_.owners.count());
      for (std::size_t i = range.first; i < range.last; ++i) fill(i);
    });
  }

  double run(int rounds) override {
    const Threads::Lead lead(recipe_.workers);
    const int team = recipe_.workers.count();
    const auto once = [&] { parallel_for(team, [&](std::int64_t worker) { work(share(worker, team)); }); };
    const Stopwatch watch;
    for (int round = 0; round < rounds; ++round) once();
    const double seconds = watch.seconds();
    rounds_ += static_cast<std::uint32_t>(rounds);
    return seconds;
  }

  std::size_t wrong_words() override {
    if (recipe_.pattern == Pattern::read) {
      std::uint32_t expected = 0;
      for (std::size_t i = 0; i < words_; ++i) expected += memory_word(i);
      return sum_ == expected * rounds_ ? 0 : words_;
    }
    std::size_t wrong = 0;
    const Scatter scatter(words_);
    for (std::size_t i = 0; i < words_; ++i) wrong += to_[i] == expected(i, scatter) ? 0U : 1U;
    return wrong;
  }

 private:
  // The part of one of `team` threads, in whole cache lines.
  Range share(std::int64_t member, int team) const {
    const std::size_t lines = words_ / kLine, of = static_cast<std::size_t>(team);
    const auto at = [&](std::size_t part) { return lines * part / of * kLine; };
    return {at(static_cast<std::size_t>(member)), at(static_cast<std::size_t>(member) + 1)};
  }

  void fill(std::size_t i) {
    const bool numbers = recipe_.pattern == Pattern::triad;
    from_[i] = numbers ? std::bit_cast<std::uint32_t>(small_number(i)) : memory_word(i);
    if (second_) second_[i] = std::bit_cast<std::uint32_t>(small_number(i + 1));
    if (to_) to_[i] = 0xFFFFFFFF;
  }

  void work(Range range) {
    switch (recipe_.pattern) {
      case Pattern::copy:
        std::memcpy(to_.get() + range.first, from_.get() + range.first,
                    (range.last - range.first) * sizeof(std::uint32_t));
        return;
      case Pattern::stream_copy:
        return stream_copy(from_.get(), to_.get(), range);
      case Pattern::read:
        sum_ += read(from_.get(), range);
        return;
      case Pattern::write:
        return write<false>(to_.get(), range);
      case Pattern::stream_write:
        return write<true>(to_.get(), range);
      case Pattern::triad:
        return triad(reinterpret_cast<const float*>(from_.get()),
                     reinterpret_cast<const float*>(second_.get()), reinterpret_cast<float*>(to_.get()),
                     range);
      case Pattern::strided:
        return gather_strided(from_.get(), to_.get(), range, words_, recipe_.stride);
      case Pattern::random: {
        const Scatter scatter(words_);
        for (std::size_t i = range.first; i < range.last; ++i) to_[i] = from_[scatter(i)];
        return;
      }
    }
  }

  std::uint32_t expected(std::size_t i, const Scatter& scatter) const {
    switch (recipe_.pattern) {
      case Pattern::write:
      case Pattern::stream_write:
        return kWritten;
      case Pattern::triad:
        return std::bit_cast<std::uint32_t>(small_number(i) + kFactor * small_number(i + 1));
      case Pattern::strided:
        return memory_word(strided(i, words_, recipe_.stride));
      case Pattern::random:
        return memory_word(scatter(i));
      default:
        return memory_word(i);
    }
  }

  const Recipe& recipe_;
  std::size_t words_;
  Words from_, second_, to_;
  std::atomic<std::uint32_t> sum_ = 0;  // of all that was read
  std::uint32_t rounds_ = 0;
};

class CpuStudy final : public MemoryStudy {
 public:
  explicit CpuStudy(int threads) {
    for (int count = 1; count < threads; count *= 2) add_all(Threads(count, true));
    add_all(Threads(threads, true));
    const auto nodes = processors_by_node();
    if (nodes.size() < 2) return;
    for (std::size_t here = 0; here < nodes.size(); ++here) {
      for (std::size_t there = 0; there < nodes.size(); ++there)
        add(fmt::format("node {} copies memory of node {}", here, there), 2,
            {Pattern::copy, 1, Threads(nodes[here]), Threads(nodes[there])});
    }
  }

  const std::vector<MemoryMethod>& methods() const override { return methods_; }
  std::unique_ptr<MemoryMove> prepare(std::size_t method, std::size_t bytes) override {
    check(bytes > 0 && bytes % kMemoryStep == 0, "{} bytes cannot be studied", bytes);
    return std::make_unique<CpuMove>(recipes_.at(method), bytes);
  }

 private:
  void add_all(const Threads& team) {
    const auto own = [&](const std::string& name, double traffic, Pattern pattern, std::uint64_t stride = 1) {
      add(name, traffic, {pattern, stride, team, team});
    };
    own("copy", 2, Pattern::copy);
    own("copy, non-temporal stores", 2, Pattern::stream_copy);
    own("read", 1, Pattern::read);
    own("write", 1, Pattern::write);
    own("write, non-temporal stores", 1, Pattern::stream_write);
    own("triad", 3, Pattern::triad);
    for (const int stride : kMemoryStrides)
      own(fmt::format("strided {}", stride), 2, Pattern::strided, static_cast<std::uint64_t>(stride));
    own("random", 2, Pattern::random);
  }

  void add(const std::string& name, double traffic, Recipe recipe) {
    const bool plain = recipe.pattern == Pattern::copy;
    methods_.push_back({MemoryGroup::access, name, recipe.workers.count(), traffic, plain});
    recipes_.push_back(std::move(recipe));
  }

  std::vector<MemoryMethod> methods_;
  std::vector<Recipe> recipes_;  // of each
};

}  // namespace

std::shared_ptr<MemoryStudy> make_memory_study(int threads) { return std::make_shared<CpuStudy>(threads); }

}  // namespace redline::backend::cpu
