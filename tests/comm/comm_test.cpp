// Ranks as threads of one process: each has its own communicator, and they talk over real sockets. Faults
// that need processes of their own are in tests/cli.
#include "comm/communicator.h"

#include <gtest/gtest.h>

#include <atomic>
#include <bit>
#include <chrono>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

#include "base/clock.h"
#include "comm/connect.h"
#include "comm/coordinator.h"
#include "comm/protocol.h"
#include "comm/wire.h"
#include "comm/world.h"
#include "graph/half.h"
#include "tests/comm/run_ranks.h"

namespace redline::comm {
namespace {

using std::chrono::milliseconds;

const std::vector<std::string> kNoFailures3(3), kNoFailures2(2);

TEST(Communicator, AddsUpOverAllRanksAndGivesEveryRankTheSameBits) {
  std::mutex mutex;
  std::vector<std::vector<float>> results;
  const auto failures = run_ranks(3, [&](const ConnectOptions& options) {
    const auto communicator = connect(options);
    std::vector<float> values(100'001);  // large enough for the ring, and not a multiple of the ranks
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = 0.1F * static_cast<float>(i % 97) + static_cast<float>(communicator->rank());
    communicator->all_reduce(values.data(), values.size(), Type::f32, Channel::gradients);
    std::vector<double> few{1.0, static_cast<double>(communicator->rank())};
    communicator->all_reduce(few);
    EXPECT_EQ(few, (std::vector<double>{3, 3}));
    communicator->barrier();
    const std::lock_guard lock(mutex);
    results.push_back(values);
  });
  EXPECT_EQ(failures, kNoFailures3);
  ASSERT_EQ(results.size(), 3U);
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
  for (std::size_t i = 0; i < results[0].size(); i += 997)
    EXPECT_NEAR(results[0][i], 3 * 0.1 * static_cast<double>(i % 97) + 3, 1e-4) << i;
}

TEST(Communicator, AddsUpHalvesRoundingEachSumOnce) {
  const auto failures = run_ranks(2, [](const ConnectOptions& options) {
    const auto communicator = connect(options);
    const float mine = communicator->rank() == 0 ? 1.0F : 0x1.8p-8F;  // the sum lies between two bf16 numbers
    std::vector<std::uint16_t> brain(5, graph::float_to_bf16(mine)), half(5, graph::float_to_f16(mine));
    communicator->all_reduce(brain.data(), brain.size(), Type::bf16);
    communicator->all_reduce(half.data(), half.size(), Type::f16);
    EXPECT_EQ(graph::bf16_to_float(brain[4]), 1.0F + 0x1p-7F);
    EXPECT_EQ(graph::f16_to_float(half[4]), 1.0F + 0x1.8p-8F);
  });
  EXPECT_EQ(failures, kNoFailures2);
}

TEST(Communicator, BroadcastsAndGathersAndKnowsItsNeighbours) {
  const auto failures = run_ranks(3, [](const ConnectOptions& options) {
    const auto communicator = connect(options);
    for (const int root : {0, 2}) {
      std::vector<int> values(4, communicator->rank());
      communicator->broadcast(std::as_writable_bytes(std::span(values)), root);
      EXPECT_EQ(values, std::vector<int>(4, root));
    }
    EXPECT_EQ(communicator->gather(10.0 + communicator->rank()), (std::vector<double>{10, 11, 12}));
    const Neighbours found = neighbours(*communicator);
    EXPECT_EQ(found.index, communicator->rank());
    EXPECT_EQ(found.count, 3);
  });
  EXPECT_EQ(failures, kNoFailures3);
}

TEST(Communicator, NobodyPassesABarrierBeforeAllAreThere) {
  std::atomic<int> there = 0;
  const auto failures = run_ranks(3, [&](const ConnectOptions& options) {
    const auto communicator = connect(options);
    if (communicator->rank() == 1) std::this_thread::sleep_for(milliseconds(50));
    ++there;
    communicator->barrier();
    EXPECT_EQ(there, 3);
  });
  EXPECT_EQ(failures, kNoFailures3);
}

TEST(Communicator, ChannelsDoNotWaitForEachOther) {
  const auto failures = run_ranks(2, [](const ConnectOptions& options) {
    const auto communicator = connect(options);
    float gradient = 1;
    double number = 2;
    // The two ranks make their calls in opposite orders, on two threads each.
    const auto first = [&] { communicator->all_reduce(&gradient, 1, Type::f32, Channel::gradients); };
    const auto second = [&] { communicator->all_reduce(&number, 1, Type::f64, Channel::norms); };
    std::thread other;
    if (communicator->rank() == 0) {
      other = std::thread(first);
      std::this_thread::sleep_for(milliseconds(20));
      second();
    } else {
      other = std::thread(second);
      std::this_thread::sleep_for(milliseconds(20));
      first();
    }
    other.join();
    EXPECT_EQ(gradient, 2);
    EXPECT_EQ(number, 4);
  });
  EXPECT_EQ(failures, kNoFailures2);
}

TEST(Communicator, WorksOverIpv6) {
  std::string why;
  if (connect_to("::1", 1, Clock::now() + milliseconds(100), why).fd() < 0 && why.find("refused") == why.npos)
    GTEST_SKIP() << "there is no IPv6 here: " << why;
  const auto failures = run_ranks(2, [](ConnectOptions options) {
    options.world.master_host = "::1";
    const auto communicator = connect(options);
    EXPECT_EQ(communicator->gather(1), (std::vector<double>{1, 1}));
    EXPECT_EQ(communicator->description(), "gloo over ::1");
  });
  EXPECT_EQ(failures, kNoFailures2);
}

TEST(Faults, ARankThatFailsIsNamedByAllOthers) {
  const Stopwatch watch;
  const auto failures = run_ranks(3, [](const ConnectOptions& options) {
    const auto communicator = connect(options);
    if (communicator->rank() == 1) {
      std::this_thread::sleep_for(milliseconds(50));
      communicator->leave("the data is damaged");
      return;
    }
    double value = 0;
    communicator->all_reduce({&value, 1});
  });
  EXPECT_LT(watch.seconds(), 2);  // by word, not by the time limit
  for (const int rank : {0, 2}) {
    EXPECT_TRUE(failures[static_cast<std::size_t>(rank)].starts_with("rank 1 ("))
        << failures[static_cast<std::size_t>(rank)];
    EXPECT_TRUE(failures[static_cast<std::size_t>(rank)].ends_with(" failed: the data is damaged"));
  }
}

TEST(Faults, ARankThatKeepsTheOthersWaitingIsNamed) {
  std::atomic<bool> done = false;
  const auto failures = run_ranks(3, [&](ConnectOptions options) {
    options.limits.collective = milliseconds(2000);
    const auto communicator = connect(options);
    if (communicator->rank() == 2) {
      while (!done) std::this_thread::sleep_for(milliseconds(20));
      return;
    }
    double value = 0;
    try {
      communicator->all_reduce({&value, 1});
    } catch (...) {
      done = true;
      throw;
    }
  });
  for (const std::size_t rank : {0U, 1U}) {
    EXPECT_TRUE(failures[rank].starts_with("rank 2 (")) << failures[rank];
    EXPECT_NE(failures[rank].find("kept the others waiting"), std::string::npos) << failures[rank];
  }
}

TEST(Faults, WaitingForADeviceEndsWhenARankIsLostAndNamesIt) {
  const auto failures = run_ranks(3, [](const ConnectOptions& options) {
    const auto communicator = connect(options);
    int asked = 0;
    communicator->wait("a step", [&] { return ++asked == 3; });
    EXPECT_EQ(asked, 3);
    if (communicator->rank() == 1) return communicator->leave("the card fell off");
    communicator->wait("a step", [] { return false; });
  });
  for (const std::size_t rank : {0U, 2U}) {
    EXPECT_TRUE(failures[rank].starts_with("rank 1 (")) << failures[rank];
    EXPECT_TRUE(failures[rank].ends_with(" failed: the card fell off")) << failures[rank];
  }
}

TEST(Faults, ADeviceThatTakesTooLongEndsTheWaiting) {
  const auto failures = run_ranks(2, [](ConnectOptions options) {
    options.limits.collective = milliseconds(1000);
    const auto communicator = connect(options);
    communicator->wait("a step", [] { return false; });
  });
  for (const std::string& failure : failures)
    EXPECT_NE(failure.find("waited more than 1 s for numbers from its peers"), std::string::npos) << failure;
}

TEST(Faults, WhoeverHangsIsToldAfterAGrace) {
  std::atomic<bool> stuck = false;
  std::string cause;
  run_ranks(2, [&](ConnectOptions options) {
    options.grace = milliseconds(100);
    options.on_stuck = [&, rank = options.world.rank](const std::string& why) {
      if (rank == 1) cause = why;
      if (rank == 1) stuck = true;
    };
    const auto communicator = connect(options);
    communicator->barrier();
    std::this_thread::sleep_for(milliseconds(50));  // until the other is out of it too
    if (communicator->rank() == 0) return communicator->leave("enough");
    for (int i = 0; i < 200 && !stuck; ++i) std::this_thread::sleep_for(milliseconds(10));
  });
  EXPECT_TRUE(stuck);
  EXPECT_NE(cause.find("rank 0 ("), std::string::npos) << cause;
}

TEST(Joining, ARankThatDiffersIsRefusedAndTheJobEnds) {
  const auto failures = run_ranks(2, [](ConnectOptions options) {
    if (options.world.rank == 1) options.facts[1].second = "0.2";
    connect(options);
  });
  EXPECT_TRUE(failures[1].ends_with("refused this process: --lr is '0.2' there and '0.1' on rank 0"))
      << failures[1];
  EXPECT_TRUE(failures[0].starts_with("rank 1 at 127.0.0.1:")) << failures[0];
}

// CBOR: an array that claims 2^63 - 1 values, alone and in an object.
const std::string kEndless = "\x9b\x7f\xff\xff\xff\xff\xff\xff\xff", kEndlessMember = "\xa1\x61x" + kEndless;

TEST(Wire, MessagesComeBackAsTheyWereSent) {
  const Message message{{"kind", "set"}, {"value", Message::binary({0, 255})}, {"facts", {{"rank", -1}}}};
  EXPECT_EQ(decode(encode(message).substr(4)), message);
}

TEST(Wire, HarmfulMessagesAreNone) {
  Message deep;
  for (int i = 0; i < 20; ++i) deep = Message::array({deep});
  for (const std::string& body : {std::string(), std::string("GET / HTTP"), kEndless, kEndlessMember,
                                  encode(Message{{"x", deep}}).substr(4), encode(Message{1, 2}).substr(4)})
    EXPECT_THROW(decode(body), DataError) << body.size();
}

TEST(Joining, StrangersAreRefusedAndTheJobGoesOn) {
  const std::uint16_t port = free_port();
  std::string refused;
  std::thread stranger([&] {
    ConnectOptions options = options_of(1, 2, port);
    options.world.token = "another token";
    try {
      connect(options);
    } catch (const UsageError& why) {
      refused = why.what();
    }
    // One that speaks another protocol altogether, and one that means harm.
    const Clock::time_point soon = Clock::now() + milliseconds(2000);
    for (const std::string& bytes :
         {std::string("GET / HTTP/1.1\r\n\r\n"), std::string({9, 0, 0, 0}) + kEndless}) {
      std::string why;
      const Socket socket = connect_to("127.0.0.1", port, soon, why);
      send_all(socket, bytes, soon);
      MessageReader reader(0);
      while (reader.read_from(socket) != MessageReader::State::closed && Clock::now() < soon)
        std::this_thread::sleep_for(milliseconds(10));
      EXPECT_LT(Clock::now(), soon) << "the connection was left open";
    }
  });
  const auto failures = run_ranks(
      2,
      [&](const ConnectOptions& options) {
        if (options.world.rank == 1) stranger.join();  // after it, so that rank 0 was there for it
        EXPECT_EQ(connect(options)->gather(1), (std::vector<double>{1, 1}));
      },
      port);
  EXPECT_EQ(failures, kNoFailures2);
  EXPECT_TRUE(refused.ends_with("its token is not this job's")) << refused;
}

// What rank 0 says to one that says this: why it refuses it, or nothing when it lets it in or hangs up.
std::string answer_to(const Message& first, std::uint16_t port) {
  const Clock::time_point soon = Clock::now() + milliseconds(2000);
  std::string why;
  const Socket socket = connect_to("127.0.0.1", port, soon, why);
  send_all(socket, encode(first), soon);
  MessageReader reader(kLongestMessage);
  for (bool open = true; open && Clock::now() < soon; std::this_thread::sleep_for(milliseconds(5))) {
    open = reader.read_from(socket) != MessageReader::State::closed;
    while (const auto message = reader.next()) {
      if (text_in(*message, kKind) == kRefused) return text_in(*message, kWhy);
      if (text_in(*message, kKind) == kBeatKind) return "";
    }
  }
  return Clock::now() < soon ? "hung up" : "no answer";
}

TEST(Joining, RefusesWhoeverDiffersInOneThing) {
  const ConnectOptions own = options_of(0, 2, free_port());
  const std::uint16_t port = own.world.master_port;
  const Coordinator coordinator(own.world, own.facts, own.limits);
  const Message good{{kKind, kHello},
                     {kProtocol, kProtocolVersion},
                     {kToken, own.world.token},
                     {kRun, own.world.run_id},
                     {kRank, 1},
                     {kSize, 2},
                     {kFacts, {{"version", "1"}, {"--lr", "0.1"}}}};
  const auto answer = [&](const char* key, const Message& value) {
    Message changed = good;
    changed[key] = value;
    return answer_to(changed, port);
  };
  EXPECT_EQ(answer(kProtocol, kProtocolVersion + 1),
            "it speaks version 2 of the protocol, and rank 0 version 1");
  for (const std::string& token : {std::string(), own.world.token + "x", own.world.token.substr(1),
                                   own.world.token.substr(0, own.world.token.size() - 1)})
    EXPECT_EQ(answer(kToken, token), "its token is not this job's") << token;
  EXPECT_EQ(answer(kToken, 7), "its token is not this job's");
  EXPECT_EQ(answer(kRun, "another"), "it belongs to run 'another', and this is run 'run'");
  EXPECT_EQ(answer(kSize, 3), "it counts 3 ranks, and rank 0 counts 2");
  EXPECT_EQ(answer(kRank, 2), "there is no rank 2");
  EXPECT_EQ(answer(kRank, -1), "there is no rank -1");
  EXPECT_EQ(answer(kFacts, "none"),
            "version is '' there and '1' on rank 0; --lr is '' there and '0.1' on rank 0");
  EXPECT_EQ(answer(kKind, kGet), "hung up");  // nobody gets anything before it has said who it is
}

TEST(Joining, ARankComesOnceAndASecondDoesNotDisturbTheJob) {
  const auto failures = run_ranks(2, [](ConnectOptions options) {
    options.grace = milliseconds(0);
    options.on_stuck = [](const std::string& cause) { ADD_FAILURE() << "the job was ended: " << cause; };
    const auto communicator = connect(options);
    if (communicator->rank() == 1) {
      try {
        connect(options);
        ADD_FAILURE() << "there are two of rank 1";
      } catch (const UsageError& why) {
        EXPECT_NE(std::string(why.what()).find("rank 1 is there already, from 127.0.0.1:"), std::string::npos)
            << why.what();
      }
    }
    communicator->barrier();
    std::this_thread::sleep_for(milliseconds(150));  // for word of an end to come
  });
  EXPECT_EQ(failures, kNoFailures2);
}

TEST(Joining, WhoDoesNotComeIsNamedAndWhoCannotBeReached) {
  ConnectOptions alone = options_of(0, 3, free_port());
  alone.limits.join = milliseconds(300);
  try {
    connect(alone);
    FAIL() << "two ranks were missing";
  } catch (const PeerError& why) {
    EXPECT_EQ(
        std::string(why.what()),
        fmt::format("ranks 1, 2 of 3 did not come to 127.0.0.1:{} within 0.3 s", alone.world.master_port));
  }
  alone.world.rank = 1;
  try {
    connect(alone);
    FAIL() << "nobody listens";
  } catch (const PeerError& why) {
    const std::string text = why.what();
    EXPECT_TRUE(text.starts_with(fmt::format("rank 1 cannot reach rank 0 at 127.0.0.1 port {} within 0.3 s: ",
                                             alone.world.master_port)))
        << text;
  }
}

Environment environment(std::map<std::string, std::string> variables) {
  return [variables = std::move(variables)](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}

TEST(World, IsReadFromEveryLaunchersVariables) {
  EXPECT_EQ(find_world(environment({})).size, 1);

  const World torch = find_world(environment({{"RANK", "3"},
                                              {"WORLD_SIZE", "4"},
                                              {"LOCAL_WORLD_SIZE", "2"},
                                              {"MASTER_ADDR", "node7"},
                                              {"MASTER_PORT", "1234"},
                                              {"TORCHELASTIC_RUN_ID", "job"},
                                              {"TORCHELASTIC_RESTART_COUNT", "2"}}));
  EXPECT_EQ(torch.rank, 3);
  EXPECT_EQ(torch.size, 4);
  EXPECT_EQ(torch.master_host, "node7");
  EXPECT_EQ(torch.master_port, 1235);  // 1234 is the agent's
  EXPECT_EQ(torch.run_id, "job.2");
  EXPECT_FALSE(torch.one_machine);

  const World kubernetes = find_world(environment(
      {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "job-master-0"}, {"MASTER_PORT", "23456"}}));
  EXPECT_EQ(kubernetes.master_port, 23456);

  const World mpi = find_world(environment({{"OMPI_COMM_WORLD_RANK", "1"},
                                            {"OMPI_COMM_WORLD_SIZE", "2"},
                                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                                            {"PMIX_NAMESPACE", "77"}}));
  EXPECT_EQ(mpi.rank, 1);
  EXPECT_EQ(mpi.master_host, "127.0.0.1");
  EXPECT_TRUE(mpi.one_machine);
  EXPECT_THROW(find_world(environment({{"OMPI_COMM_WORLD_RANK", "1"},
                                       {"OMPI_COMM_WORLD_SIZE", "4"},
                                       {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}})),
               UsageError);

  const World slurm = find_world(environment({{"SLURM_PROCID", "2"},
                                              {"SLURM_STEP_NUM_TASKS", "4"},
                                              {"SLURM_STEP_NUM_NODES", "2"},
                                              {"SLURM_JOB_ID", "9"},
                                              {"SLURM_STEP_NODELIST", "gpu[03-04]"}}));
  EXPECT_EQ(slurm.rank, 2);
  EXPECT_EQ(slurm.master_host, "gpu03");
  EXPECT_GE(slurm.master_port, 20000);
  // A batch script outside srun is one process, however many tasks the job has.
  EXPECT_EQ(
      find_world(environment({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_JOB_ID", "9"}})).size, 1);

  EXPECT_THROW(find_world(environment({{"RANK", "4"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "a"}})),
               UsageError);
  EXPECT_THROW(find_world(environment({{"RANK", "x"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "a"}})),
               UsageError);
  EXPECT_THROW(find_world(environment({{"RANK", "0"}, {"WORLD_SIZE", "4"}})), UsageError);
}

TEST(World, ReadsSlurmsListsAndEndpoints) {
  EXPECT_EQ(first_host("node1"), "node1");
  EXPECT_EQ(first_host("node1,node2"), "node1");
  EXPECT_EQ(first_host("node[007,009-011]"), "node007");
  EXPECT_EQ(first_host("rack[2-3]-gpu,x"), "rack2-gpu");
  EXPECT_THROW(first_host("node[1-2"), UsageError);

  std::string host;
  std::uint16_t port = 0;
  parse_endpoint("[fe80::1]:29500", "--master", host, port);
  EXPECT_EQ(host, "fe80::1");
  EXPECT_EQ(port, 29500);
  parse_endpoint("node1:80", "--master", host, port);
  EXPECT_EQ(host, "node1");
  for (const char* bad : {"node1", "fe80::1:80", ":80", "node1:", "node1:70000", "[]:80"})
    EXPECT_THROW(parse_endpoint(bad, "--master", host, port), UsageError) << bad;
}

}  // namespace
}  // namespace redline::comm
