// Every expected number is worked out by hand in the comment beside it.
#include "bench/scaling_model.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace redline::bench {
namespace {

// 1 GB/s and 1 us in a node of two, 0.1 GB/s and 10 us between nodes.
const Network kPairs{{1e9, 1e-6, {}}, {1e8, 1e-5, {}}, 2};

TEST(ScalingModel, CostsOfAnAllReduceWithinANode) {
  const Network four{{1e9, 1e-6, {}}, {1e8, 1e-5, {}}, 4};
  // 2 (3 us + 3/4 of 1 ms)
  EXPECT_DOUBLE_EQ(all_reduce_seconds(four, Collective::ring, 1e6, 4), 1.506e-3);
  // 2 (3 us + 1 ms): up and down a chain
  EXPECT_DOUBLE_EQ(all_reduce_seconds(four, Collective::tree, 1e6, 4), 2.006e-3);
  // A node alone does its reduce-scatter and all-gather: the ring.
  EXPECT_DOUBLE_EQ(all_reduce_seconds(four, Collective::hierarchical, 1e6, 4), 1.506e-3);
  EXPECT_EQ(all_reduce_seconds(four, Collective::ring, 1e6, 1), 0);
}

TEST(ScalingModel, CostsOfAnAllReduceOverNodes) {
  // Two links of 0.1 GB/s leave a node: 2 (2 x 10 us + 1 us + 3/4 of 5 ms)
  EXPECT_DOUBLE_EQ(all_reduce_seconds(kPairs, Collective::ring, 1e6, 4), 7.542e-3);
  // 2 (10 us + 1 us + 5 ms)
  EXPECT_DOUBLE_EQ(all_reduce_seconds(kPairs, Collective::tree, 1e6, 4), 10.022e-3);
  // 2 (1 us + 0.5 ms, then half the bytes by a ring of two: 10 us + 1/2 of 5 ms)
  EXPECT_DOUBLE_EQ(all_reduce_seconds(kPairs, Collective::hierarchical, 1e6, 4), 6.022e-3);
  EXPECT_EQ(best_all_reduce(kPairs, 1e6, 4).second, Collective::hierarchical);
  // 256 nodes of one GPU and few bytes: a tree has 8 levels where a ring has 255 hops.
  const Network single{{1e9, 1e-6, {}}, {1e8, 1e-5, {}}, 1};
  EXPECT_DOUBLE_EQ(all_reduce_seconds(single, Collective::tree, 1e3, 256), 2 * (8e-5 + 1e-5));
  EXPECT_DOUBLE_EQ(all_reduce_seconds(single, Collective::ring, 1e3, 256), 2 * (255e-5 + 255.0 / 256 * 1e-5));
}

TEST(ScalingModel, ALinkIsFittedToItsOwnTimes) {
  const Network single{{}, {2e9, 3e-5, {}}, 1};
  std::vector<std::pair<double, double>> times;
  for (double bytes = 128; bytes < 2e8; bytes *= 2)
    times.emplace_back(bytes, all_reduce_seconds(single, Collective::ring, bytes, 4));
  const Link link = fit_link(times, 4);
  EXPECT_NEAR(link.bandwidth, 2e9, 1e3);  // rounding of sums over 21 points
  EXPECT_NEAR(link.latency, 3e-5, 1e-12);
  EXPECT_NEAR(link.bandwidth_at(1e6), 2e9, 1e6);
  EXPECT_THROW(fit_link({{1e3, 1.0}, {1e6, 0.5}}, 2), DataError);
}

TEST(ScalingModel, AMeasuredLinkHasTheBandwidthOfEachSize) {
  const Link link{0, 0, {{1e6, 4e9}, {4e6, 2e9}}};
  EXPECT_DOUBLE_EQ(link.bandwidth_at(1e3), 4e9);
  EXPECT_DOUBLE_EQ(link.bandwidth_at(2e6), 3e9);  // half the way by its logarithm
  EXPECT_DOUBLE_EQ(link.bandwidth_at(1e9), 2e9);
  const Link fitted = fit_link({{1e3, 1e-3}, {1e6, 2e-3}, {2e6, 3e-3}, {4e6, 9e-3}}, 2);
  ASSERT_FALSE(fitted.by_size.empty());
  // What it was fitted to comes out again.
  const Network pair{{}, fitted, 1};
  EXPECT_NEAR(all_reduce_seconds(pair, Collective::ring, 4e6, 2), 9e-3, 1e-12);
}

// Between two nodes of one GPU, at 1 B/s and no latency, an all-reduce takes as many seconds as it has bytes.
ScalingOptions one_byte_a_second() {
  ScalingOptions options;
  options.network = {{1, 0, {}}, {1, 0, {}}, 1};
  options.best = false;
  options.collective = Collective::ring;
  return options;
}

TEST(ScalingModel, BucketsTravelWhileBackwardGoesOn) {
  const ScalingOptions options = one_byte_a_second();
  // 4..7 and 8..9, then 2 s of update.
  const Prediction hidden = predict({10, 8, {{3, 4}, {1, 8}}}, options, 2);
  EXPECT_DOUBLE_EQ(hidden.step_seconds, 11);
  EXPECT_DOUBLE_EQ(hidden.communication_seconds, 4);
  EXPECT_DOUBLE_EQ(hidden.exposed_seconds, 1);
  EXPECT_DOUBLE_EQ(hidden.efficiency, 10.0 / 11);
  EXPECT_EQ(hidden.collective, "ring");
  // 4..10, so that the second waits: 10..11, then 2 s.
  EXPECT_DOUBLE_EQ(predict({10, 8, {{6, 4}, {1, 8}}}, options, 2).step_seconds, 13);
  EXPECT_DOUBLE_EQ(predict({10, 8, {{6, 4}, {1, 8}}}, options, 1).step_seconds, 10);
}

TEST(ScalingModel, ComputingSlowsDownWhileNumbersTravel) {
  ScalingOptions options = one_byte_a_second();
  options.contention = 0.5;
  // In 4..7 computing comes from 4 to 5.5, so that it is at 8 after 9.5; 9.5..10.5, then 2 s.
  EXPECT_DOUBLE_EQ(predict({10, 8, {{3, 4}, {1, 8}}}, options, 2).step_seconds, 12.5);
  options.contention = 1;  // one after the other: 10 + 4
  EXPECT_DOUBLE_EQ(predict({10, 8, {{3, 4}, {1, 8}}}, options, 2).step_seconds, 14);
}

TEST(ScalingModel, AllWaitForTheSlowest) {
  ScalingOptions options;
  options.network = {{1e30, 0, {}}, {1e30, 0, {}}, 8};
  options.spread = 0.01;
  const StepShape shape{1, 1, {{1, 0.5}}};
  EXPECT_EQ(predict(shape, options, 1).step_seconds, 1);
  // The largest of 2 normal draws is 0.564 deviations above the mean, of 1000 3.24; Blom's formula is within
  // 0.05.
  EXPECT_NEAR(predict(shape, options, 2).straggler_seconds, 0.00564, 5e-4);
  EXPECT_NEAR(predict(shape, options, 1000).straggler_seconds, 0.0324, 5e-4);
}

TEST(ScalingModel, ReadsLinksTimesAndSteps) {
  const Link link = parse_link("400Gb/s,5us", "--link");
  EXPECT_DOUBLE_EQ(link.bandwidth, 50e9);
  EXPECT_DOUBLE_EQ(link.latency, 5e-6);
  EXPECT_DOUBLE_EQ(parse_seconds("12.5ms", "--step-time"), 0.0125);
  for (const char* bad :
       {"", "400", "400Gb/s", "400Gb/s,", "Gb/s,5us", "-4Gb/s,5us", "4Gb/s,5", "nanGB/s,1us"})
    EXPECT_THROW(parse_link(bad, "--link"), UsageError) << bad;
  const StepShape shape{10, 8, {{3, 4}, {1, 8}}};
  nlohmann::ordered_json json = {{"step", to_json(shape)}};
  EXPECT_EQ(to_json(parse_step_shape(json, "a.json")), to_json(shape));
  json["step"]["buckets"][1]["ready_seconds"] = 9;  // after the end of backward
  EXPECT_THROW(parse_step_shape(json, "a.json"), DataError);
  EXPECT_THROW(parse_step_shape({{"step", 1}}, "a.json"), DataError);
}

}  // namespace
}  // namespace redline::bench
