// What keeps a flood of strangers from keeping a job's ranks out, one rule at a time. The server is given its
// turns by the test, so that nothing depends on who is quicker; joining_test.cpp has real floods.
#include "comm/hub.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "base/sha256.h"
#include "comm/handshake.h"
#include "comm/protocol.h"
#include "comm/wire.h"

namespace redline::comm {
namespace {

using std::chrono::milliseconds;

const std::string kToken = "a token of the test", kRole = "rank";
constexpr std::size_t kMany = 2500;  // more strangers than a hub has room for

struct Guests final : Hub::Handler {
  Hub::Refusal hello(Hub::Connection&, const Message&) override { return {}; }
  void welcomed(Hub::Connection&) override { ++welcome; }
  void message(Hub::Connection&, const Message&) override { ++messages; }
  void closed(Hub::Connection&, const std::string&) override { ++lost; }
  int welcome = 0, messages = 0, lost = 0;
};

class HubUnderFlood : public testing::Test {
 protected:
  void SetUp() override {
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_cur < 2 * kMany + 200) GTEST_SKIP() << "this process may not open enough files";
    const std::string address = hub_.address("127.0.0.1");
    port_ = static_cast<std::uint16_t>(std::stoi(address.substr(address.rfind(':') + 1)));
  }

  Socket connect() const {
    Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port_);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(socket.fd(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    return socket;
  }
  void turns(int count) {
    for (int i = 0; i < count; ++i) hub_.turn(milliseconds(0), guests_);
  }
  // Strangers who connect and say nothing, taken in some at a time, for the listener's queue is short.
  void let_strangers_come() {
    for (std::size_t i = 0; i < kMany; ++i) {
      strangers_.push_back(connect());
      if (i % 64 == 63) turns(2);
    }
    turns(20);
  }
  static void say(const Link& link, const Message& message) {
    ASSERT_TRUE(send_all(link.socket, encode(message), Clock::now() + milliseconds(1000)));
  }
  // What a client was told within a few turns of the server, each of them short.
  std::optional<Message> hear(Link& link) {
    for (int i = 0; i < 50; ++i) {
      turns(1);
      link.reader.read_from(link.socket);
      if (auto message = link.reader.next()) return message;
    }
    return {};
  }
  Link knock(const std::string& token) {
    Link link{connect(), MessageReader(kLongestMessage)};
    say(link, make_knock(token, kRole, nonce_));
    return link;
  }
  void finish_handshake(Link& link, const Message& challenge) {
    say(link, make_hello(kToken, kRole, bytes_in(challenge, kNonce), nonce_, Message::object()));
    const auto welcome = hear(link);
    ASSERT_TRUE(welcome);
    EXPECT_EQ(text_in(*welcome, kKind), kWelcome);
  }

  Hub hub_{listen_at("127.0.0.1", 0, false), kRole, kToken};
  Guests guests_;
  std::uint16_t port_ = 0;
  const std::string nonce_ = random_bytes(kNonceBytes);
  std::vector<Socket> strangers_;
};

TEST_F(HubUnderFlood, WhoComesAfterTheStrangersIsAnsweredAtOnce) {
  let_strangers_come();
  Link rank = knock(kToken);
  const auto challenge = hear(rank);
  ASSERT_TRUE(challenge) << "strangers hold every place";
  finish_handshake(rank, *challenge);
  EXPECT_EQ(guests_.welcome, 1);
}

TEST_F(HubUnderFlood, StrangersTakeNoGuestsAndNoMembersPlace) {
  Link member = knock(kToken), guest = knock(kToken);
  auto challenge = hear(member);
  ASSERT_TRUE(challenge);
  finish_handshake(member, *challenge);
  challenge = hear(guest);
  ASSERT_TRUE(challenge);
  let_strangers_come();
  finish_handshake(guest, *challenge);
  say(member, {{kKind, kBeatKind}});
  turns(5);
  EXPECT_EQ(guests_.messages, 1);
  EXPECT_EQ(guests_.lost, 0);
}

TEST_F(HubUnderFlood, WhoKnocksWithAnotherTokenGetsNoPlace) {
  Link stranger = knock("another token");
  const auto answer = hear(stranger);
  ASSERT_TRUE(answer);
  EXPECT_EQ(text_in(*answer, kKind), kRefused);
  EXPECT_EQ(stranger.reader.read_from(stranger.socket), MessageReader::State::closed);
}

// The oldest stranger is the first to make way: by then what it sent must have been read.
TEST_F(HubUnderFlood, WhoKnockedBeforeTheStrangersIsHeard) {
  Link rank = knock(kToken);
  let_strangers_come();
  const auto challenge = hear(rank);
  ASSERT_TRUE(challenge);
  finish_handshake(rank, *challenge);
}

}  // namespace
}  // namespace redline::comm
