// Launchers of several machines, as threads: node 0 decides, and the others follow.
#include "comm/nodes.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "comm/communicator.h"
#include "tests/comm/run_ranks.h"

namespace redline::comm {
namespace {

using std::chrono::milliseconds;

NodesOptions node_of(int node, int nodes, std::uint16_t port, int max_restarts = 5) {
  NodesOptions options;
  options.node = node;
  options.nodes = options.min_nodes = nodes;
  options.host = "127.0.0.1";
  options.port = port;
  options.run_id = "run";
  options.token = "a token of the test";
  options.max_restarts = max_restarts;
  options.patience = milliseconds(20'000);
  return options;
}

// What became of a launcher: the attempts that it made, and the job's exit code.
struct Told {
  std::vector<int> attempts;
  std::vector<int> nodes;  // in each
  int code = -1;
  std::string why;
};

// The exit code of a node's ranks in an attempt; -1: they run until they are stopped.
using Ranks = std::function<int(int attempt)>;

void follow(Nodes& nodes, const Ranks& ranks, Told& told, bool final = false) {
  for (;;) {
    const Order order = nodes.next({});
    if (order.kind == Order::Kind::end) {
      told.code = order.code;
      told.why = order.why;
      return;
    }
    told.attempts.push_back(order.attempt);
    told.nodes.push_back(order.nodes);
    int code = ranks(order.attempt);
    if (code < 0) {
      while (!nodes.check()) std::this_thread::sleep_for(milliseconds(10));
      code = 75;
    }
    nodes.report({order.attempt, code, final || (code != 0 && code != 75), "failed"});
  }
}

void follow(const NodesOptions& options, const Ranks& ranks, Told& told) {
  Nodes nodes(options);
  follow(nodes, ranks, told);
}

TEST(Nodes, AllFollowWhatNode0Decides) {
  const std::uint16_t port = free_port();
  Told told[3];
  std::vector<std::thread> threads;
  // Node 1 fails twice, node 2 once more; the third time all goes well.
  const Ranks ranks[3] = {[](int attempt) { return attempt < 3 ? -1 : 0; },
                          [](int attempt) { return attempt < 2   ? 75
                                                   : attempt < 3 ? -1
                                                                 : 0; },
                          [](int attempt) { return attempt < 2   ? -1
                                                   : attempt < 3 ? 75
                                                                 : 0; }};
  for (int i = 0; i < 3; ++i)
    threads.emplace_back([&, i] { follow(node_of(i, 3, port), ranks[i], told[i]); });
  for (std::thread& thread : threads) thread.join();
  for (const Told& one : told) {
    EXPECT_EQ(one.attempts, (std::vector<int>{0, 1, 2, 3}));
    EXPECT_EQ(one.code, 0);
  }
}

TEST(Nodes, RestartsAreCountedForTheJob) {
  const std::uint16_t port = free_port();
  Told told[2];
  std::thread other([&] {
    follow(
        node_of(1, 2, port, 0), [](int) { return 75; }, told[1]);
  });
  follow(
      node_of(0, 2, port, 2), [](int) { return -1; }, told[0]);
  other.join();
  for (const Told& one : told) {
    EXPECT_EQ(one.attempts, (std::vector<int>{0, 1, 2}));
    EXPECT_EQ(one.code, 75);
    EXPECT_TRUE(one.why.starts_with("node 1 (")) << one.why;
  }
}

// What a restart does not mend ends all of them at once, with its code.
TEST(Nodes, AFinalEndIsFollowedByNoAttempt) {
  const std::uint16_t port = free_port();
  Told told[2];
  const Stopwatch watch;
  std::thread other([&] {
    follow(
        node_of(1, 2, port), [](int) { return 64; }, told[1]);
  });
  follow(
      node_of(0, 2, port), [](int) { return -1; }, told[0]);
  other.join();
  EXPECT_LT(watch.seconds(), 5);
  for (const Told& one : told) {
    EXPECT_EQ(one.attempts, (std::vector<int>{0}));
    EXPECT_EQ(one.code, 64);
  }
}

TEST(Nodes, ALauncherMayComeLateAndBeStartedAgain) {
  const std::uint16_t port = free_port();
  Told told[2], before;
  std::atomic<bool> begun = false;
  std::thread other([&] {
    std::this_thread::sleep_for(milliseconds(700));  // late
    {
      Nodes nodes(node_of(1, 2, port));
      before.attempts.push_back(nodes.next({}).attempt);
      begun = true;
    }  // gone without a word, with all its ranks
    follow(
        node_of(1, 2, port), [](int) { return 0; }, told[1]);
  });
  follow(
      node_of(0, 2, port), [](int attempt) { return attempt == 0 ? -1 : 0; }, told[0]);
  other.join();
  EXPECT_TRUE(begun);
  EXPECT_EQ(before.attempts, (std::vector<int>{0}));
  EXPECT_EQ(told[0].attempts, (std::vector<int>{0, 1}));
  EXPECT_EQ(told[1].attempts, (std::vector<int>{1}));
  EXPECT_EQ(told[0].code, 0);
  EXPECT_EQ(told[1].code, 0);
}

TEST(Nodes, AllHearThatNode0WasStopped) {
  const std::uint16_t port = free_port();
  Told told[2];
  std::thread other([&] {
    follow(
        node_of(1, 2, port), [](int) { return 75; }, told[1]);
  });
  {
    Nodes first(node_of(0, 2, port));
    EXPECT_EQ(first.next({}).attempt, 0);
  }
  other.join();
  EXPECT_EQ(told[1].code, 75);  // it was told that node 0 was stopped
  EXPECT_NE(told[1].why.find("node 0"), std::string::npos) << told[1].why;
}

TEST(Nodes, WhoDoesNotComeIsNamed) {
  NodesOptions options = node_of(0, 3, free_port());
  options.patience = milliseconds(500);
  Told told;
  follow(
      options, [](int) { return 0; }, told);
  EXPECT_EQ(told.code, 75);
  EXPECT_EQ(told.why, fmt::format("nodes 1, 2 of 3 did not join at 127.0.0.1:{} within 0.5 s", options.port));
  options.node = 1;
  EXPECT_THROW(follow(
                   options, [](int) { return 0; }, told),
               PeerError);
}

TEST(Nodes, GoesOnWithTheNodesItHas) {
  const std::uint16_t port = free_port();
  Told told[2];
  const auto elastic = [&](int node) {
    NodesOptions options = node_of(node, 3, port);
    options.min_nodes = 2;
    options.elastic_wait = milliseconds(300);
    return options;
  };
  std::thread other([&] {
    follow(
        elastic(2), [](int) { return 0; }, told[1]);
  });
  follow(
      elastic(0), [](int) { return 0; }, told[0]);
  other.join();
  EXPECT_EQ(told[0].nodes, (std::vector<int>{2}));
  EXPECT_EQ(told[1].nodes, (std::vector<int>{2}));
  EXPECT_EQ(told[1].code, 0);
}

TEST(Nodes, StrangersAndMistakesAreRefused) {
  const std::uint16_t port = free_port();
  Nodes nodes(node_of(0, 2, port));
  const auto refused = [&](auto&& change) {
    NodesOptions options = node_of(1, 2, port);
    options.patience = milliseconds(1'000);
    change(options);
    Told told;
    try {
      follow(
          options, [](int) { return 0; }, told);
    } catch (const Error& why) {
      return std::string(why.what());
    }
    return std::string("let in");
  };
  EXPECT_TRUE(refused([](NodesOptions& o) { o.token = "another"; }).ends_with("its token is not this job's"));
  EXPECT_TRUE(
      refused([](NodesOptions& o) { o.nodes = 3; }).ends_with("it expects 3 machines, but node 0 expects 2"));
  EXPECT_NE(refused([](NodesOptions& o) { o.run_id = "other"; }).find("it belongs to run 'other'"),
            std::string::npos);
}

}  // namespace
}  // namespace redline::comm
