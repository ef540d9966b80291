// Who joins a job, who is kept out, and who is missed: rank 0's end of the control connections and the
// others', over real sockets.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "comm/connect.h"
#include "comm/coordinator.h"
#include "comm/membership.h"
#include "comm/protocol.h"
#include "comm/wire.h"
#include "tests/comm/run_ranks.h"

namespace redline::comm {
namespace {

using std::chrono::milliseconds;

const std::vector<std::string> kNoFailures2(2);

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

// Reads until a message of the kind comes; gives what it says is the cause, or nothing when it does not come.
std::string wait_for(const char* kind, const Socket& socket, Clock::time_point deadline) {
  MessageReader reader(kLongestMessage);
  for (; Clock::now() < deadline; std::this_thread::sleep_for(milliseconds(5))) {
    reader.read_from(socket);
    while (const auto message = reader.next())
      if (text_in(*message, kKind) == kind) return text_in(*message, kWhy);
  }
  return {};
}

const TimeLimits kShort{milliseconds(10'000), milliseconds(1'000)};  // a silence of 0.7 s is a loss

TEST(Silence, OfARankIsNoticedByRank0WhichTellsTheOthers) {
  const World world = options_of(0, 2, free_port()).world;
  const Coordinator coordinator(world, {}, kShort);
  const Clock::time_point deadline = Clock::now() + milliseconds(5'000);
  std::string why;
  std::vector<Socket> sockets;
  for (const int rank : {0, 1}) {
    sockets.push_back(connect_to("127.0.0.1", world.master_port, deadline, why));
    send_all(sockets.back(),
             encode({{kKind, kHello},
                     {kProtocol, kProtocolVersion},
                     {kToken, world.token},
                     {kRun, world.run_id},
                     {kRank, rank},
                     {kSize, 2}}),
             deadline);
  }
  std::atomic<bool> done = false;
  std::thread beats([&] {
    for (; !done; std::this_thread::sleep_for(milliseconds(50)))
      send_all(sockets[0], encode({{kKind, kBeatKind}}), deadline);
  });
  const std::string cause = wait_for(kLost, sockets[0], deadline);
  done = true;
  beats.join();
  EXPECT_TRUE(cause.starts_with("rank 1 (")) << cause;
  EXPECT_NE(cause.find("gave no sign of life for 0.7 s"), std::string::npos) << cause;
}

TEST(Silence, OfRank0IsNoticedByTheOthers) {
  const World world = options_of(1, 2, free_port()).world;
  const Socket listener = listen_at(world.master_host, world.master_port, false);
  Socket rank0;
  std::thread welcome([&] {
    while ((rank0 = accept_from(listener)).fd() < 0) std::this_thread::sleep_for(milliseconds(5));
    send_all(rank0, encode({{kKind, kAll}, {kMembers, {{{kHost, "a"}}, {{kHost, "b"}}}}}),
             Clock::now() + milliseconds(1'000));
  });
  Membership membership(world, {}, kShort, nullptr);
  welcome.join();
  EXPECT_EQ(membership.cause(milliseconds(100)), "");
  EXPECT_EQ(
      membership.cause(milliseconds(3'000)),
      fmt::format("rank 0 (127.0.0.1 port {}) gave no sign of life for 0.7 s: it was stopped, or the network "
                  "to it is cut",
                  world.master_port));
}

}  // namespace
}  // namespace redline::comm
