#include "bench/memory_bench.h"

#include <algorithm>
#include <set>
#include <sstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "backend/backend.h"
#include "backend/memory_pattern.h"
#include "base/error.h"
#include "fake_move.h"

namespace redline::bench {
namespace {

using backend::MemoryGroup;
using backend::MemoryMethod;

// A copy at 1 GB/s, one way to the device at 8 and one that the device lacks.
class FakeStudy final : public backend::MemoryStudy {
 public:
  const std::vector<MemoryMethod>& methods() const override { return methods_; }
  std::unique_ptr<backend::MemoryMove> prepare(std::size_t method, std::size_t bytes) override {
    if (method == 2) throw UnavailableError("it has none");
    const double rate = method == 0 ? 2e9 : 8e9;
    return std::make_unique<FakeMove>(static_cast<double>(bytes) * methods_[method].traffic / rate, wrong);
  }
  std::size_t wrong = 0;

 private:
  std::vector<MemoryMethod> methods_ = {{MemoryGroup::access, "copy", 2, 2, true},
                                        {MemoryGroup::to_device, "pinned", 1, 1, true},
                                        {MemoryGroup::to_device, "sent, by post", 1, 1, false}};
};

MemoryBenchOptions two_sizes() {
  MemoryBenchOptions options;
  options.sizes = {4096, std::size_t{1} << 20};
  options.repeat = 8;
  return options;
}

TEST(MemoryBench, CountsWhatMustMoveInTheTimeOfTheMedian) {
  FakeStudy study;
  std::size_t last = 0;
  const auto timings = bench_memory(two_sizes(), study, [&](std::size_t done, std::size_t of) {
    EXPECT_EQ(of, 6);
    last = done;
    return true;
  });
  EXPECT_EQ(last, 6);
  ASSERT_EQ(timings.size(), 6);
  EXPECT_NEAR(timings[1].bytes_per_second(), 2e9, 1);
  EXPECT_NEAR(timings[3].bytes_per_second(), 8e9, 1);
  EXPECT_NEAR(timings[3].bytes_per_second_interval().coverage, 0.99, 0.05);
  EXPECT_EQ(timings[0].seconds.size(), 8);
  EXPECT_EQ(timings[0].rounds, 244);  // of 4.1 us in a millisecond
  EXPECT_FALSE(timings[4].measured());
  EXPECT_EQ(timings[4].refusal, "it has none");
  EXPECT_NEAR(ceiling(timings, MemoryGroup::access), 2e9, 1);
  EXPECT_EQ(ceiling(timings, MemoryGroup::from_device), 0);
}

// A copy of 64 KiB from the cache is no part of what a large one reaches.
TEST(MemoryBench, TheTableDividesByThePlainCopyOfTheSameSize) {
  const auto timing = [](std::size_t bytes, bool plain, double seconds) {
    MemoryTiming made;
    made.method = {MemoryGroup::access, plain ? "copy" : "read", 1, 2, plain};
    made.bytes = bytes;
    made.seconds = {seconds};
    return made;
  };
  constexpr std::size_t kSmall = 65536, kBig = 16777216;
  const std::vector<MemoryTiming> timings = {timing(kSmall, true, 1e-6), timing(kBig, true, 1e-3),
                                             timing(kSmall, false, 2e-6), timing(kBig, false, 1e-3)};
  EXPECT_NEAR(ceiling(timings, MemoryGroup::access, kSmall), 2 * 65536e6, 1);
  EXPECT_NEAR(ceiling(timings, MemoryGroup::access), 2 * 16777216e3, 1);
  const std::string csv = memory_csv(timings);
  EXPECT_NE(csv.find("access,read,1,65536,2,1,1,0.000002000,65536000000,65536000000,65536000000,0.5000,ok"),
            std::string::npos)
      << csv;
  EXPECT_NE(csv.find(",1.0000,ok"), std::string::npos) << csv;
}

TEST(MemoryBench, RefusesWordsOutOfPlace) {
  FakeStudy study;
  study.wrong = 3;
  EXPECT_THROW(bench_memory(two_sizes(), study, [](auto, auto) { return true; }), InternalError);
}

TEST(MemoryBench, StopsWhenAskedTo) {
  FakeStudy study;
  EXPECT_EQ(bench_memory(two_sizes(), study, [](auto done, auto) { return done < 2; }).size(), 2);
}

TEST(MemoryBench, WritesEveryColumnWhateverWasMeasured) {
  FakeStudy study;
  const auto timings = bench_memory(two_sizes(), study, [](auto, auto) { return true; });
  std::istringstream csv(memory_csv(timings));
  for (std::string line; std::getline(csv, line);) {
    bool quoted = false;
    std::size_t commas = 0;
    for (const char c : line) {
      quoted = quoted != (c == '"');
      commas += c == ',' && !quoted ? 1U : 0U;
    }
    EXPECT_EQ(commas, 12) << line;
  }
  const nlohmann::ordered_json json = memory_json(timings);
  EXPECT_EQ(json["results"].size(), 6);
  EXPECT_EQ(json["results"][4]["reason"], "it has none");
  EXPECT_NEAR(json["ceilings"]["host to device"].get<double>(), 8e9, 1);
  const std::string table = memory_table(timings, MemoryGroup::to_device);
  EXPECT_NE(table.find("100.0%"), std::string::npos) << table;
  EXPECT_NE(table.find("sent, by post: it has none"), std::string::npos) << table;
  EXPECT_EQ(memory_table(timings, MemoryGroup::from_device), "");
  EXPECT_EQ(memory_chart(timings, MemoryGroup::access).bars.size(), 1);
}

TEST(MemoryBench, GivesNoAbsurdInterval) {
  MemoryTiming timing;
  timing.method = {MemoryGroup::access, "copy", 1, 2, true};
  timing.bytes = 1 << 20;
  for (int i = 0; i < 20; ++i) timing.seconds.push_back(1e-3 * (1 + 0.01 * (i % 5)));
  const std::string steady = memory_table({timing}, MemoryGroup::access);
  EXPECT_NE(steady.find(" +- "), std::string::npos) << steady;
  EXPECT_EQ(steady.find('?'), std::string::npos) << steady;
  for (int i = 0; i < 20; ++i) timing.seconds[static_cast<std::size_t>(i)] = i % 2 == 0 ? 1e-3 : 40e-3;
  const std::string uneven = memory_table({timing}, MemoryGroup::access);
  EXPECT_NE(uneven.find("+-    ?"), std::string::npos) << uneven;
}

TEST(MemoryBench, RefusesSizesThatMakeNoSense) {
  MemoryBenchOptions options = two_sizes();
  for (const std::size_t size : {std::size_t{0}, std::size_t{4097}}) {
    options.sizes = {size};
    EXPECT_THROW(validate(options), UsageError) << size;
  }
  options = two_sizes();
  options.filter = "teleport";
  FakeStudy study;
  EXPECT_THROW(bench_memory(options, study, [](auto, auto) { return true; }), UsageError);
}

TEST(MemoryPattern, OrdersTakeEveryWordOnce) {
  for (const std::uint64_t words : {1024U, 3072U, 5120U}) {
    std::set<std::uint64_t> scattered, strode;
    const backend::Scatter scatter(words);
    for (std::uint64_t i = 0; i < words; ++i) {
      scattered.insert(scatter(i));
      strode.insert(backend::strided(i, words, 32));
    }
    EXPECT_EQ(scattered.size(), words);
    EXPECT_EQ(strode.size(), words);
    EXPECT_EQ(*scattered.rbegin(), words - 1);
    EXPECT_EQ(*strode.rbegin(), words - 1);
  }
}

class MemoryStudyTest : public testing::Test {
 protected:
  void SetUp() override {
    backend::DeviceOptions device;
#if defined(REDLINE_TEST_CUDA)
    device.device = "cuda";
#endif
    device.threads = 2;
    try {
      backend_ = backend::make_backend(device);
    } catch (const UnavailableError& reason) {
      GTEST_SKIP() << reason.what();
    }
    study_ = backend::make_memory_study(device);
  }
  std::unique_ptr<backend::Backend> backend_;
  std::shared_ptr<backend::MemoryStudy> study_;
};

#if defined(REDLINE_TEST_CUDA)
constexpr std::size_t kLarge = (std::size_t{5} << 20) + 4096;  // several chunks
#else
constexpr std::size_t kLarge = (std::size_t{256} << 10) + 4096;
#endif

// What moved is checked after each.
TEST_F(MemoryStudyTest, EveryMethodMovesWhatItShould) {
  MemoryBenchOptions options;
  options.sizes = {4096, 3 * 4096, kLarge};
  options.repeat = 1;
  options.run_seconds = 0;
  const auto timings = bench_memory(options, *study_, [](auto, auto) { return true; });
  for (const MemoryTiming& timing : timings) EXPECT_EQ(timing.refusal, "") << timing.method.name;
}

TEST_F(MemoryStudyTest, RoundsOfPlainCopiesAreTimedOneByOne) {
  constexpr int kRounds = 70;  // more than a device is given at once
  const auto check = [&](backend::MemoryMove& move, const std::string& name) {
    const std::vector<double> seconds = move.run_each(kRounds);
    EXPECT_EQ(seconds.size(), kRounds) << name;
    for (const double s : seconds) EXPECT_GT(s, 0) << name;
    EXPECT_EQ(move.wrong_words(), 0) << name;
  };
  for (std::size_t i = 0; i < study_->methods().size(); ++i) {
    const MemoryMethod& method = study_->methods()[i];
    if (!method.plain || method.group != MemoryGroup::access) continue;
    for (const std::size_t bytes : {std::size_t{4096}, kLarge}) {
      check(*study_->prepare(i, bytes), method.name);
#if defined(REDLINE_TEST_CUDA)
      check(*study_->prepare_chain(i, bytes), method.name + " in a chain");
#endif
    }
  }
}

}  // namespace
}  // namespace redline::bench
