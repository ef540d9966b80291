#include "base/text.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

namespace redline {
namespace {

TEST(Bytes, KeepThreeDigits) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(512), "512 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1024), "1 KiB");
  EXPECT_EQ(format_bytes(1536), "1.5 KiB");
  EXPECT_EQ(format_bytes((1ull << 20) - 1), "1 MiB");
  EXPECT_EQ(format_bytes(24ull << 30), "24 GiB");
  EXPECT_EQ(format_bytes(std::numeric_limits<std::uint64_t>::max()), "16 EiB");
}

TEST(Counts, KeepThreeDigits) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(950), "950");
  EXPECT_EQ(format_count(25'557), "25.6K");
  EXPECT_EQ(format_count(999'600), "1M");
  EXPECT_EQ(format_count(1'281'167), "1.28M");
  EXPECT_EQ(format_count(4.089e9), "4.09G");
  EXPECT_EQ(format_count(-1500), "-1.5K");
  EXPECT_EQ(format_count(4.089e9, "FLOP/s"), "4.09 GFLOP/s");
  EXPECT_EQ(format_count(950, "B/s"), "950 B/s");
  EXPECT_EQ(format_count(std::nan("")), "?");
}

TEST(Nearest, FindsWhatWasMeant) {
  const std::vector<std::string> flags{"--epochs", "--batch-size", "--lr", "--momentum"};
  EXPECT_EQ(nearest("--epoch", flags), "--epochs");
  EXPECT_EQ(nearest("--epohcs", flags), "--epochs");
  EXPECT_EQ(nearest("--batchsize", flags), "--batch-size");
  EXPECT_EQ(nearest("--mom", flags), "--momentum");
  EXPECT_EQ(nearest("--colour", flags), "");
  EXPECT_EQ(nearest("", flags), "");
  EXPECT_EQ(nearest("dctor", {"doctor", "data"}), "doctor");
  EXPECT_EQ(nearest("SGD", {"lars", "sgd"}), "sgd");
  EXPECT_EQ(nearest("resnext50", {"resnet50", "resnext50_32x4d"}), "resnext50_32x4d");
  EXPECT_EQ(nearest("resnext101", {"resnet101", "resnext101_32x8d", "resnext101_64x4d"}), "");
  EXPECT_EQ(nearest("tr", {"train", "trace"}), "") << "two begin with it: none is meant more than the other";
}

}  // namespace
}  // namespace redline
