// Who joins a job, who is kept out, and who is missed: rank 0's end of the control connections and the
// others', over real sockets.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/sha256.h"
#include "comm/connect.h"
#include "comm/coordinator.h"
#include "comm/handshake.h"
#include "comm/membership.h"
#include "comm/protocol.h"
#include "comm/wire.h"
#include "tests/comm/run_ranks.h"

namespace redline::comm {
namespace {

using std::chrono::milliseconds;

const std::vector<std::string> kNoFailures(2);

TEST(Joining, ARankThatDiffersIsRefusedAndTheJobEnds) {
  const auto failures = run_ranks(2, [](ConnectOptions options) {
    if (options.world.rank == 1) options.facts[1].second = "0.2";
    connect(options);
  });
  EXPECT_TRUE(failures[1].ends_with("refused this process: --lr is '0.2' there and '0.1' on rank 0"))
      << failures[1];
  EXPECT_TRUE(failures[0].starts_with("rank 1 at 127.0.0.1:")) << failures[0];
}

// One that comes when the others know already that the job cannot begin hears of it too, instead of looking
// for a rank 0 that is gone and ending with a code that says to try again.
TEST(Joining, WhoComesLateHearsThatTheJobCannotBegin) {
  std::atomic<bool> refused = false;
  const auto failures = run_ranks(3, [&](ConnectOptions options) {
    if (options.world.rank == 1) options.facts[1].second = "0.2";
    while (options.world.rank == 2 && !refused) std::this_thread::sleep_for(milliseconds(10));
    if (options.world.rank == 2) std::this_thread::sleep_for(milliseconds(500));
    try {
      connect(options);
    } catch (const Error& why) {
      EXPECT_EQ(why.code(), ExitCode::usage) << options.world.rank << ": " << why.what();
      refused = true;
    }
  });
  EXPECT_EQ(failures, std::vector<std::string>(3));
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
  EXPECT_EQ(failures, kNoFailures);
  EXPECT_TRUE(refused.ends_with("its token is not this job's")) << refused;
}

// The next message of a kind, or any; none when the connection ends or it takes too long.
std::optional<Message> next_message(Link& link, const char* kind, Clock::time_point deadline) {
  for (bool open = true; open && Clock::now() < deadline; std::this_thread::sleep_for(milliseconds(2))) {
    open = link.reader.read_from(link.socket) != MessageReader::State::closed;
    while (auto message = link.reader.next())
      if (kind == nullptr || text_in(*message, kKind) == kind) return message;
  }
  return {};
}

Link dial(std::uint16_t port, Clock::time_point deadline) {
  std::string why;
  return {connect_to("127.0.0.1", port, deadline, why), MessageReader(kLongestMessage)};
}

Message body_of(const World& world, int rank, const Facts& facts = {}) {
  Message named = Message::object();
  for (const auto& [name, value] : facts) named[name] = value;
  return {{kRun, world.run_id}, {kRank, rank}, {kSize, world.size}, {kFacts, named}};
}

const std::string kClientNonce(kNonceBytes, 'c');

// The connection of a rank that was let in, by hand.
Link join_by_hand(const World& world, int rank, Clock::time_point deadline) {
  Link link = dial(world.master_port, deadline);
  send_all(link.socket, encode(make_knock(world.token, "rank", kClientNonce)), deadline);
  const auto challenge = next_message(link, kChallenge, deadline);
  send_all(link.socket,
           encode(make_hello(world.token, "rank", bytes_in(challenge.value(), kNonce), kClientNonce,
                             body_of(world, rank))),
           deadline);
  return link;
}

// What rank 0 says to a message: why it refuses it, or the kind of its answer, or that it hangs up. The
// answer is kept.
std::string answer_to(Link& link, const Message& message, Message& answer) {
  const Clock::time_point soon = Clock::now() + milliseconds(2000);
  send_all(link.socket, encode(message), soon);
  const auto found = next_message(link, nullptr, soon);
  if (!found) return Clock::now() < soon ? "hung up" : "no answer";
  answer = *found;
  return text_in(answer, kKind) == kRefused ? text_in(answer, kWhy) : text_in(answer, kKind);
}

// The same for a knock and, where that is answered by a challenge, a hello.
std::string answer_to(std::uint16_t port, const Message& knock,
                      const std::function<Message(const std::string& nonce)>& hello) {
  Link link = dial(port, Clock::now() + milliseconds(2000));
  Message answer;
  const std::string kind = answer_to(link, knock, answer);
  return kind == kChallenge ? answer_to(link, hello(bytes_in(answer, kNonce)), answer) : "knock: " + kind;
}

TEST(Joining, RefusesWhoeverDiffersInOneThing) {
  const ConnectOptions own = options_of(0, 2, free_port());
  const World& world = own.world;
  const Coordinator coordinator(world, own.facts, own.limits);
  const Message good = body_of(world, 1, own.facts);
  const Message knock = make_knock(world.token, "rank", kClientNonce);
  const auto with = [&](const char* key, const Message& value) {
    Message changed = good;
    changed[key] = value;
    return answer_to(world.master_port, knock, [&](const std::string& theirs) {
      return make_hello(world.token, "rank", theirs, kClientNonce, changed);
    });
  };
  const auto with_token = [&](const std::string& token, const char* role = "rank") {
    return answer_to(world.master_port, knock, [&](const std::string& theirs) {
      return make_hello(token, role, theirs, kClientNonce, good);
    });
  };
  const auto knocking = [&](const Message& other) {
    return answer_to(world.master_port, other, [](const std::string&) { return Message::object(); });
  };
  const auto knock_with = [&](const char* key, const Message& value) {
    Message other = knock;
    other[key] = value;
    return knocking(other);
  };
  const auto changed = [&](const char* key, const Message& value) {  // after it was proved
    return answer_to(world.master_port, knock, [&](const std::string& theirs) {
      Message hello = make_hello(world.token, "rank", theirs, kClientNonce, good);
      hello[key] = value;
      return hello;
    });
  };
  const std::string kStranger = "its token is not this job's";
  EXPECT_EQ(knock_with(kProtocol, kProtocolVersion + 1),
            fmt::format("knock: it speaks version {} of the protocol, and this end version {}",
                        kProtocolVersion + 1, kProtocolVersion));
  for (const std::string& token : {std::string(), world.token + "x", world.token.substr(1),
                                   world.token.substr(0, world.token.size() - 1)}) {
    EXPECT_EQ(with_token(token), kStranger) << token;
    EXPECT_EQ(knocking(make_knock(token, "rank", kClientNonce)), "knock: " + kStranger) << token;
  }
  // A proof for one kind of connection is none for another.
  EXPECT_EQ(with_token(world.token, "node"), kStranger);
  EXPECT_EQ(knocking(make_knock(world.token, "node", kClientNonce)), "knock: " + kStranger);
  EXPECT_EQ(knock_with(kNonce, binary(std::string(kNonceBytes, 'd'))), "knock: " + kStranger);
  EXPECT_EQ(knocking(make_knock(world.token, "rank", "short")), "knock: " + kStranger);
  EXPECT_EQ(knock_with(kBody, std::string(kLongestKnock, 'x')), "knock: hung up");
  EXPECT_EQ(changed(kProof, 7), kStranger);
  EXPECT_EQ(changed(kBody, binary(encode_body(body_of(world, 0, own.facts)))), kStranger);
  EXPECT_EQ(with(kRun, "another"), "it belongs to run 'another', but this is run 'run'");
  EXPECT_EQ(with(kSize, 3), "it expects 3 ranks, but rank 0 expects 2");
  EXPECT_EQ(with(kRank, 2), "there is no rank 2");
  EXPECT_EQ(with(kRank, -1), "there is no rank -1");
  EXPECT_EQ(with(kFacts, "none"),
            "version is '' there and '1' on rank 0; --lr is '' there and '0.1' on rank 0");
  // Nobody gets anything before it has said who it is.
  EXPECT_EQ(changed(kKind, kGet), "hung up");
  EXPECT_EQ(knock_with(kKind, kHello), "knock: hung up");
  EXPECT_EQ(with_token(world.token), kWelcome);
}

// Whoever overhears a handshake can repeat its knock, and no more: the challenge is another. Nor does the
// token travel.
TEST(Joining, AnOverheardHandshakeIsWorthNothing) {
  const ConnectOptions own = options_of(0, 2, free_port());
  const World& world = own.world;
  const Coordinator coordinator(world, own.facts, own.limits);
  std::string overheard;
  const auto say = [&](const std::string& theirs) {
    const Message hello = make_hello(world.token, "rank", theirs, kClientNonce, body_of(world, 1, own.facts));
    if (overheard.empty()) overheard = encode(hello);
    return decode(std::string_view(overheard).substr(4));
  };
  const Message knock = make_knock(world.token, "rank", kClientNonce);
  EXPECT_EQ(answer_to(world.master_port, knock, say), kWelcome);
  EXPECT_EQ(answer_to(world.master_port, knock, say), "its token is not this job's");
  overheard += encode(knock);
  EXPECT_EQ(overheard.find(world.token), std::string::npos);
}

// One who listens in rank 0's place and does not know the token is found out.
TEST(Joining, AFalseRank0IsFoundOut) {
  const World world = options_of(1, 2, free_port()).world;
  const Socket listener = listen_at(world.master_host, world.master_port, false);
  std::thread impostor([&] {
    Link link{Socket(), MessageReader(kLongestMessage)};
    while ((link.socket = accept_from(listener)).fd() < 0) std::this_thread::sleep_for(milliseconds(5));
    const Clock::time_point soon = Clock::now() + milliseconds(2000);
    send_all(link.socket,
             encode(Message{{kKind, kChallenge},
                            {kProtocol, kProtocolVersion},
                            {kNonce, binary(std::string(kNonceBytes, 's'))}}),
             soon);
    next_message(link, kHello, soon);
    send_all(link.socket, encode(Message{{kKind, kWelcome}, {kProof, binary(std::string(32, 'p'))}}), soon);
    next_message(link, nullptr, soon);  // until the other hangs up
  });
  try {
    const Membership membership(world, {}, {milliseconds(3'000), milliseconds(3'000)});
    ADD_FAILURE() << "it was believed";
  } catch (const UsageError& why) {
    EXPECT_NE(std::string(why.what()).find("does not know this job's token"), std::string::npos)
        << why.what();
  }
  impostor.join();
}

// A rank of the job's next attempt may come before the last one has ended: it waits for its own.
TEST(Joining, ARankOfAnotherAttemptTriesAgain) {
  ConnectOptions old = options_of(0, 2, free_port());
  old.world.run_id = "run.0";
  auto before = std::make_unique<Coordinator>(old.world, old.facts, old.limits);
  std::thread later([&] {
    std::this_thread::sleep_for(milliseconds(400));
    before.reset();
    ConnectOptions options = options_of(0, 2, old.world.master_port);
    EXPECT_EQ(connect(options)->gather(1), (std::vector<double>{1, 1}));
  });
  EXPECT_EQ(connect(options_of(1, 2, old.world.master_port))->gather(1), (std::vector<double>{1, 1}));
  later.join();
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
        EXPECT_NE(std::string(why.what()).find("rank 1 has already joined, from 127.0.0.1:"),
                  std::string::npos)
            << why.what();
      }
    }
    communicator->barrier();
    std::this_thread::sleep_for(milliseconds(150));  // for word of an end to come
  });
  EXPECT_EQ(failures, kNoFailures);
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
        fmt::format("ranks 1, 2 of 3 did not join at 127.0.0.1:{} within 0.3 s", alone.world.master_port));
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

// One that joins and then never connects to the others keeps them no longer than the limit, and is named.
TEST(Joining, ARankThatDoesNotConnectIsNamedInTime) {
  const ConnectOptions own = options_of(0, 2, free_port());
  std::atomic<bool> done = false;
  std::thread other([&] {
    Membership idle(options_of(1, 2, own.world.master_port).world, own.facts, own.limits);
    while (!done) std::this_thread::sleep_for(milliseconds(10));
  });
  ConnectOptions options = own;
  options.limits.collective = milliseconds(1'500);
  const Clock::time_point begun = Clock::now();
  try {
    connect(options);
    ADD_FAILURE() << "nobody answered";
  } catch (const PeerError& why) {
    const std::string text = why.what();
    EXPECT_TRUE(text.starts_with("rank 1 (")) << text;
    EXPECT_NE(text.find("kept the others waiting for more than 1.5 s"), std::string::npos) << text;
  }
  EXPECT_LT(Clock::now() - begun, milliseconds(6'000));
  done = true;
  other.join();
}

const TimeLimits kShort{milliseconds(10'000), milliseconds(1'000)};  // a silence of 0.7 s is a loss

TEST(Silence, OfARankIsNoticedByRank0WhichTellsTheOthers) {
  const World world = options_of(0, 2, free_port()).world;
  const Coordinator coordinator(world, {}, kShort);
  const Clock::time_point deadline = Clock::now() + milliseconds(5'000);
  std::vector<Link> links;
  for (const int rank : {0, 1}) links.push_back(join_by_hand(world, rank, deadline));
  std::atomic<bool> done = false;
  std::thread beats([&] {
    for (; !done; std::this_thread::sleep_for(milliseconds(50)))
      send_all(links[0].socket, encode(Message{{kKind, kBeatKind}}), deadline);
  });
  const std::string cause =
      text_in(next_message(links[0], kLost, deadline).value_or(Message::object()), kWhy);
  done = true;
  beats.join();
  EXPECT_TRUE(cause.starts_with("rank 1 (")) << cause;
  EXPECT_NE(cause.find("gave no sign of life for 0.7 s"), std::string::npos) << cause;
}

TEST(Silence, OfRank0IsNoticedByTheOthers) {
  const World world = options_of(1, 2, free_port()).world;
  const Socket listener = listen_at(world.master_host, world.master_port, false);
  Link rank0{Socket(), MessageReader(kLongestMessage)};
  std::thread welcome([&] {
    while ((rank0.socket = accept_from(listener)).fd() < 0) std::this_thread::sleep_for(milliseconds(5));
    const Clock::time_point soon = Clock::now() + milliseconds(1'000);
    const std::string nonce(kNonceBytes, 's');
    send_all(rank0.socket,
             encode(Message{{kKind, kChallenge}, {kProtocol, kProtocolVersion}, {kNonce, binary(nonce)}}),
             soon);
    const auto knock = next_message(rank0, kKnock, soon);
    const std::string proof = server_proof(world.token, "rank", nonce, bytes_in(knock.value(), kNonce));
    send_all(rank0.socket, encode(Message{{kKind, kWelcome}, {kProof, binary(proof)}}), soon);
    send_all(rank0.socket,
             encode(Message{{kKind, kAll},
                            {kHosts, Message::array({"a", "1.1.1.1"})},
                            {kMembers, Message::array({0U, 1, 0U, 2})}}),
             soon);
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
