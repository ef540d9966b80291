// Every file of tests/fuzz/corpus through the fuzzer that it is for, whole, cut off and with bits turned:
// what libFuzzer looks for at length, the ordinary tests look for at the known bad places.
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <ostream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/random.h"

using Target = int (*)(const std::uint8_t*, std::size_t);

// Each fuzzer's LLVMFuzzerTestOneInput under a name of its own.
#define REDLINE_FUZZER(name) extern "C" int fuzz_##name(const std::uint8_t*, std::size_t);
#include "fuzzers.inc"
#undef REDLINE_FUZZER

namespace {

struct Named {
  const char* name;
  Target target;

  friend void PrintTo(const Named& one, std::ostream* out) { *out << one.name; }
};

const Named kTargets[] = {
#define REDLINE_FUZZER(name) {#name, fuzz_##name},
#include "fuzzers.inc"
#undef REDLINE_FUZZER
};

class Corpus : public testing::TestWithParam<Named> {};

TEST_P(Corpus, NothingInItDoesHarm) {
  const std::filesystem::path folder = std::filesystem::path(REDLINE_CORPUS) / GetParam().name;
  ASSERT_TRUE(std::filesystem::is_directory(folder)) << folder << " has the seeds of a fuzzer";
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::ifstream file(entry.path(), std::ios::binary);
    std::vector<std::uint8_t> bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    SCOPED_TRACE(entry.path().filename().string());
    ++files;
    // A heap block of the exact size, so that the address sanitizer sees a byte too many.
    const auto feed = [](const std::vector<std::uint8_t>& input) {
      const std::vector<std::uint8_t> exact(input.begin(), input.end());
      EXPECT_EQ(GetParam().target(exact.data(), exact.size()), 0);
    };
    feed(bytes);
    redline::Random random(7);
    for (int i = 0; i < 8 && !bytes.empty(); ++i) {
      feed({bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(random.below(bytes.size()))});
      std::vector<std::uint8_t> turned = bytes;
      for (int bits = 0; bits < 3; ++bits)
        turned[random.below(turned.size())] ^= static_cast<std::uint8_t>(1 << random.below(8));
      feed(turned);
    }
  }
  EXPECT_GT(files, 0);
}

INSTANTIATE_TEST_SUITE_P(All, Corpus, testing::ValuesIn(kTargets),
                         [](const auto& one) { return std::string(one.param.name); });

}  // namespace
