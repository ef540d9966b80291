#include "data/images/decode_memory.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "base/error.h"
#include "data/images/decode.h"
#include "data/pictures.h"
#include "data/progress.h"

namespace redline::data {
namespace {

TEST(DecodeMemory, LeasesNeverHoldMoreThanTheBudgetTogether) {
  std::atomic<std::int64_t> used{0}, most{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&, i] {
      for (int round = 0; round < 200; ++round) {
        const std::int64_t bytes = (i + 1) * kDecodeMemory / 12;
        const MemoryLease lease(bytes);
        const std::int64_t now = used += bytes;
        for (std::int64_t seen = most; now > seen && !most.compare_exchange_weak(seen, now);) {
        }
        used -= bytes;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(most.load(), kDecodeMemory);
  EXPECT_GT(most.load(), kDecodeMemory / 2);
}

TEST(DecodeMemory, OneThatNeedsMoreThanAllGoesAlone) {
  const MemoryLease alone(3 * kDecodeMemory);
  EXPECT_EQ(alone.bytes(), 3 * kDecodeMemory);
}

TEST(DecodeMemory, WaitingEndsWhenAskedToAndTheNextInLineGoesOn) {
  auto all = std::make_unique<MemoryLease>(kDecodeMemory);
  int asked = 0;
  EXPECT_THROW(MemoryLease(1, [&] { return ++asked == 2; }), Stopped);
  EXPECT_EQ(asked, 2);
  std::thread next([] { const MemoryLease one(1); });  // would wait forever behind the one that left
  all.reset();
  next.join();
}

// 19 MB of pixels are held until the decoder is closed, and not after.
TEST(DecodeMemory, DecodersTakeItForLargeImagesAndGiveItBack) {
  const Picture picture = gradient(2200, 2200);
  const std::vector<std::uint8_t> png = encode_png(picture.rgb.data(), 2200, 2200);
  Decoder decoder;
  decoder.open(png);
  decoder.decode();
  std::atomic<bool> others_turn{false};
  std::thread other([&] {
    const MemoryLease all(kDecodeMemory);
    others_turn = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_FALSE(others_turn);
  EXPECT_GT(decoder.kept_bytes(), static_cast<std::size_t>(kSmallImage));
  decoder.close();
  EXPECT_EQ(decoder.kept_bytes(), 0U);
  other.join();
  const std::vector<std::uint8_t> cut(png.begin(), png.end() - 1000);
  decoder.open(cut);
  EXPECT_THROW(decoder.examine(), DataError);
  const MemoryLease all(kDecodeMemory);  // would wait forever, had the failure kept some
}

// examine() finds what decode() finds.
TEST(Decoder, ExamineRefusesWhatDecodeRefuses) {
  for (const char* name :
       {"420.jpg", "progressive.jpg", "cmyk.jpg", "grey.jpg", "alpha.png", "palette.png"}) {
    const std::vector<std::uint8_t> good = bytes_of(golden(name));
    Decoder decoder;
    decoder.open(good);
    EXPECT_NO_THROW(decoder.examine()) << name;
    decoder.open(good);
    EXPECT_NO_THROW(decoder.examine(true)) << name;
    for (std::size_t size = good.size() / 2; size < good.size(); size += good.size() / 16 + 1) {
      const std::vector<std::uint8_t> cut(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(size));
      for (const bool thorough : {false, true})
        EXPECT_THROW(
            {
              decoder.open(cut);
              decoder.examine(thorough);
            },
            DataError)
            << name << " cut at " << size;
    }
  }
}

}  // namespace
}  // namespace redline::data
