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

constexpr std::int64_t kMost = memory_limit(MemoryFor::decoding);

TEST(DecodeMemory, LeasesNeverHoldMoreThanTheBudgetTogether) {
  std::atomic<std::int64_t> used{0}, most{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&, i] {
      for (int round = 0; round < 200; ++round) {
        const std::int64_t bytes = (i + 1) * kMost / 12;
        const MemoryLease lease(MemoryFor::decoding, bytes);
        const std::int64_t now = used += bytes;
        for (std::int64_t seen = most; now > seen && !most.compare_exchange_weak(seen, now);) {
        }
        used -= bytes;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(most.load(), kMost);
  EXPECT_GT(most.load(), kMost / 2);
}

TEST(DecodeMemory, OneThatNeedsMoreThanAllGoesAlone) {
  const MemoryLease alone(MemoryFor::decoding, 3 * kMost);
  EXPECT_EQ(alone.bytes(), 3 * kMost);
}

TEST(DecodeMemory, WaitingEndsWhenAskedToAndTheNextInLineGoesOn) {
  auto all = std::make_unique<MemoryLease>(MemoryFor::decoding, kMost);
  int asked = 0;
  EXPECT_THROW(MemoryLease(MemoryFor::decoding, 1, [&] { return ++asked == 2; }), Stopped);
  EXPECT_EQ(asked, 2);
  std::thread next(
      [] { const MemoryLease one(MemoryFor::decoding, 1); });  // would wait forever behind the one that left
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
    const MemoryLease all(MemoryFor::decoding, kMost);
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
  const MemoryLease all(MemoryFor::decoding, kMost);  // would wait forever, had the failure kept some
}

// A JPEG with this many bytes after its end.
std::vector<std::uint8_t> padded_jpeg(std::size_t bytes) {
  std::vector<std::uint8_t> jpeg = gradient_jpeg(40, 30);
  jpeg.resize(jpeg.size() + bytes);
  return jpeg;
}

// The copy that decoding makes of a large file is counted from open() to close(), whoever decodes it in the
// end.
TEST(DecodeMemory, DecodersTakeItForLargeFiles) {
  const auto large = static_cast<std::size_t>(kSmallImage);
  std::vector<std::uint8_t> progressive = bytes_of(golden("progressive.jpg"));
  progressive.resize(progressive.size() + large);
  for (const auto& file : {padded_jpeg(large), progressive}) {
    Decoder decoder;
    decoder.open(file);
    EXPECT_THROW(MemoryLease(MemoryFor::decoding, kMost, [] { return true; }), Stopped);
    decoder.decode();
    decoder.close();
    EXPECT_LT(decoder.kept_bytes(), large);
    const MemoryLease all(MemoryFor::decoding, kMost);
  }
  DecodeLimits limits;
  limits.max_pixels = 100;
  Decoder decoder(limits);
  EXPECT_THROW(decoder.open(padded_jpeg(large)), DataError);
  const MemoryLease all(MemoryFor::decoding, kMost);  // would wait forever, had the failure kept some
}

TEST(DecodeMemory, LargeFilesWaitForEachOtherAndNotForDecoders) {
  constexpr auto kFiles = static_cast<std::size_t>(memory_limit(MemoryFor::files));
  const MemoryLease decoding(MemoryFor::decoding, kMost);
  std::vector<std::uint8_t> scratch;
  const std::function<bool()> give_up = [] { return true; };
  FileBytes first(scratch, give_up);
  EXPECT_EQ(first.room(1000).size(), 1000U);
  EXPECT_EQ(first.room(kFiles).size(), kFiles);
  EXPECT_EQ(scratch.size(), 1000U) << "a large file is not kept";
  EXPECT_EQ(first.room(kFiles).size(), kFiles) << "the file before is gone";
  FileBytes second(scratch, give_up);
  EXPECT_THROW(second.room(static_cast<std::size_t>(kSmallImage) + 1), Stopped);
  first.room(1);
  second.room(static_cast<std::size_t>(kSmallImage) + 1);
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
