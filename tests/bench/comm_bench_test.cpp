// Ranks as threads of one process, over real sockets.
#include "bench/comm_bench.h"
#include "bench/sizes.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <mutex>

#include <fmt/format.h>

#include "base/error.h"
#include "tests/comm/run_ranks.h"

namespace redline::bench {
namespace {

using comm::Operation;

const std::vector<Operation> kAll = {Operation::all_reduce, Operation::reduce_scatter, Operation::all_gather,
                                     Operation::reduce_scatter_all_gather, Operation::broadcast};

const CommProgress kGoOn = [](std::int64_t, std::int64_t) { return true; };
const CommDone kQuiet = [](const CommTiming&) {};

CommBenchOptions small_options() {
  CommBenchOptions options;
  options.operations = kAll;
  options.sizes = {100, 70'000};  // neither fills three parts evenly
  options.repeat = 2;
  options.warmup = 1;
  return options;
}

// What every rank gets from a bench on `ranks` ranks, with the fabric that `make` gives.
using MakeFabric = std::function<std::unique_ptr<comm::Fabric>(comm::Communicator&)>;
std::vector<std::vector<CommTiming>> run(int ranks, const CommBenchOptions& options, const MakeFabric& make,
                                         const std::function<bool(int rank, std::int64_t done)>& go_on) {
  std::mutex mutex;
  std::vector<std::vector<CommTiming>> results(static_cast<std::size_t>(ranks));
  const auto failures = comm::run_ranks(ranks, [&](const comm::ConnectOptions& how) {
    const auto control = comm::connect(how);
    const auto fabric = make(*control);
    auto timings = bench_comm(
        options, *fabric, *control,
        [&](std::int64_t done, std::int64_t) { return go_on(control->rank(), done); }, kQuiet);
    const std::lock_guard lock(mutex);
    results[static_cast<std::size_t>(control->rank())] = std::move(timings);
  });
  EXPECT_EQ(failures, std::vector<std::string>(static_cast<std::size_t>(ranks)));
  return results;
}

bool always(int, std::int64_t) { return true; }
std::unique_ptr<comm::Fabric> gloo(comm::Communicator& control) { return control.make_fabric(); }

TEST(CommBench, EveryCollectiveOfGlooGivesRightResultsAndTheSameTimesOnEveryRank) {
  for (const comm::Type type : {comm::Type::f32, comm::Type::bf16}) {
    CommBenchOptions options = small_options();
    options.sizes.push_back(1'000'000);  // does not fit into a connection's buffers
    options.type = type;
    const auto results = run(3, options, gloo, always);
    ASSERT_EQ(results[0].size(), 18U);  // two algorithms of all-reduce, one of each other, three sizes
    for (std::size_t i = 0; i < results[0].size(); ++i) {
      const CommTiming& t = results[0][i];
      EXPECT_TRUE(t.measured()) << name_of(t.operation) << " " << t.algorithm << ": " << t.reason;
      EXPECT_EQ(t.seconds.size(), 2U);
      EXPECT_EQ(t.seconds, results[2].at(i).seconds);
    }
  }
}

// Gives back what it was given, or says that it cannot.
class Idle final : public comm::Fabric, public comm::Exchange {
 public:
  explicit Idle(bool available) : available_(available) {}
  std::string description() const override { return "nothing"; }
  std::vector<std::string> algorithms(Operation) const override { return {"ring/ll", "ring/simple"}; }
  std::unique_ptr<comm::Exchange> make_exchange(const comm::ExchangeOptions&) override {
    if (!available_) throw UnavailableError("not on this machine");
    return std::make_unique<Idle>(true);
  }
  void fill(std::span<const std::byte> values) override { values_.assign(values.begin(), values.end()); }
  std::vector<double> run(int repetitions) override {
    return std::vector<double>(static_cast<std::size_t>(repetitions), 0.001);
  }
  void read(std::span<std::byte> values) const override {
    std::memcpy(values.data(), values_.data(), values.size());
  }

 private:
  bool available_;
  std::vector<std::byte> values_;
};

TEST(CommBench, AWrongResultIsNamedOnEveryRank) {
  CommBenchOptions options = small_options();
  options.protocols = {"simple"};
  const auto results = run(
      2, options, [](comm::Communicator&) { return std::make_unique<Idle>(true); }, always);
  for (const auto& timings : results) {
    ASSERT_EQ(timings.size(), 10U);
    for (const CommTiming& t : timings) EXPECT_EQ(t.status, CommStatus::wrong) << name_of(t.operation);
    EXPECT_EQ(timings[0].reason, "value 0 on rank 0 is 1, not 7");  // 1 of rank 0 and 6 of rank 1
    // Rank 0 has its own values after a broadcast: rank 1 tells.
    EXPECT_EQ(timings[8].reason, "value 0 on rank 1 is 6, not 1");
  }
}

// Gloo, but that its last value is wrong on rank 1 from the second run on (the first warms up), and that its
// times are made up: 1 ms on rank 0, 3 ms on rank 1.
class Spoiled final : public comm::Fabric, public comm::Exchange {
 public:
  Spoiled(std::unique_ptr<comm::Fabric> fabric, int rank, bool wrong)
      : fabric_(std::move(fabric)), rank_(rank), wrong_(wrong) {}
  std::string description() const override { return "spoiled"; }
  std::vector<std::string> algorithms(Operation operation) const override {
    return fabric_->algorithms(operation);
  }
  std::unique_ptr<comm::Exchange> make_exchange(const comm::ExchangeOptions& options) override {
    auto made = std::make_unique<Spoiled>(nullptr, rank_, wrong_);
    made->exchange_ = fabric_->make_exchange(options);
    return made;
  }
  void fill(std::span<const std::byte> values) override { exchange_->fill(values); }
  std::vector<double> run(int repetitions) override {
    ++runs_;
    exchange_->run(repetitions);
    return std::vector<double>(static_cast<std::size_t>(repetitions), rank_ == 0 ? 0.001 : 0.003);
  }
  void read(std::span<std::byte> values) const override {
    exchange_->read(values);
    if (wrong_ && rank_ == 1 && runs_ > 1)
      values.back() ^= std::byte{1};  // the exponent's lowest bits but one
  }

 private:
  std::unique_ptr<comm::Fabric> fabric_;
  std::unique_ptr<comm::Exchange> exchange_;
  int rank_, runs_ = 0;
  bool wrong_;
};

MakeFabric spoiled(bool wrong) {
  return [wrong](comm::Communicator& control) {
    return std::make_unique<Spoiled>(control.make_fabric(), control.rank(), wrong);
  };
}

TEST(CommBench, OneWrongValueAfterTheLastRepetitionIsFound) {
  const auto results = run(2, small_options(), spoiled(true), always);
  for (const auto& timings : results) {
    ASSERT_EQ(timings.size(), 12U);
    for (const CommTiming& t : timings) {
      EXPECT_EQ(t.status, CommStatus::wrong) << name_of(t.operation) << " of " << t.bytes;
      const std::string place = fmt::format("value {} on rank 1 is ", t.bytes / sizeof(float) - 1);
      EXPECT_TRUE(t.reason.starts_with(place)) << t.reason;
    }
  }
}

TEST(CommBench, TimesAreOfTheRankThatCameLastAndOfABroadcastTheSlowest) {
  const auto results = run(2, small_options(), spoiled(false), always);
  for (const auto& timings : results) {
    for (const CommTiming& t : timings) {
      const double expected = t.operation == Operation::broadcast ? 0.003 : 0.001;
      EXPECT_EQ(t.seconds, std::vector<double>(2, expected)) << name_of(t.operation);
    }
  }
}

TEST(CommBench, WhatALibraryDoesNotDoIsRecordedOnceAndOneRankCanStopAll) {
  const auto results = run(
      2, small_options(), [](comm::Communicator&) { return std::make_unique<Idle>(false); },
      [](int rank, std::int64_t done) { return rank == 0 || done < 4; });
  for (const auto& timings : results) {
    ASSERT_EQ(timings.size(),
              2U);  // the two protocols of the first operation, one size each; then rank 1 stops
    EXPECT_EQ(timings[1].status, CommStatus::unavailable);
    EXPECT_EQ(timings[1].reason, "not on this machine");
  }
}

// Says that it takes long.
class Slow final : public comm::Fabric, public comm::Exchange {
 public:
  explicit Slow(std::unique_ptr<comm::Fabric> fabric) : fabric_(std::move(fabric)) {}
  std::string description() const override { return "slow"; }
  std::vector<std::string> algorithms(Operation operation) const override {
    return fabric_->algorithms(operation);
  }
  std::unique_ptr<comm::Exchange> make_exchange(const comm::ExchangeOptions& options) override {
    auto made = std::make_unique<Slow>(nullptr);
    made->exchange_ = fabric_->make_exchange(options);
    return made;
  }
  void fill(std::span<const std::byte> values) override { exchange_->fill(values); }
  std::vector<double> run(int repetitions) override {
    EXPECT_LE(repetitions, 2) << "half a second at most without a look at signals";
    exchange_->run(repetitions);
    return std::vector<double>(static_cast<std::size_t>(repetitions), 0.25);
  }
  void read(std::span<std::byte> values) const override { exchange_->read(values); }

 private:
  std::unique_ptr<comm::Fabric> fabric_;
  std::unique_ptr<comm::Exchange> exchange_;
};

TEST(CommBench, ALongMeasurementIsStoppedInItsMiddle) {
  CommBenchOptions options = small_options();
  options.sizes = {100};
  options.repeat = 9;
  const auto slow = [](comm::Communicator& control) { return std::make_unique<Slow>(control.make_fabric()); };
  for (const auto& timings : run(2, options, slow, always))
    for (const CommTiming& t : timings) EXPECT_EQ(t.seconds.size(), 9U);
  std::atomic<int> asked = 0;
  const auto results =
      run(2, options, slow, [&](int rank, std::int64_t) { return rank == 0 || ++asked < 4; });
  EXPECT_EQ(asked, 4);
  for (const auto& timings : results) EXPECT_TRUE(timings.empty());
}

TEST(CommBench, BandwidthsCountWhatABusCarries) {
  CommTiming timing{Operation::all_reduce, "ring", 8'000'000, 4, CommStatus::ok, {}, {0.001, 0.002, 0.004}};
  EXPECT_DOUBLE_EQ(timing.algorithm_bandwidth(), 4e9);
  EXPECT_DOUBLE_EQ(timing.bus_bandwidth(), 6e9);  // 2 (n - 1) / n
  timing.operation = Operation::all_gather;
  EXPECT_DOUBLE_EQ(timing.bus_bandwidth(), 3e9);
  timing.operation = Operation::broadcast;
  EXPECT_DOUBLE_EQ(timing.bus_bandwidth(), 4e9);
}

TEST(CommBench, ReadsSizes) {
  EXPECT_EQ(parse_sizes("128-1K"), (std::vector<std::size_t>{128, 256, 512, 1024}));
  EXPECT_EQ(parse_sizes("100,3MiB"), (std::vector<std::size_t>{100, 3U << 20}));
  EXPECT_EQ(parse_sizes("128-128M").size(), 21U);
  for (const char* bad : {"", "0", "12Q", "1K-", "4K-1K", "2G", "1,,2", "-1", "99999999999999999999"})
    EXPECT_THROW(parse_sizes(bad), UsageError) << bad;
}

}  // namespace
}  // namespace redline::bench
