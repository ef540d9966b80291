// A large job's beginning: thousands of ranks come to rank 0 at once while strangers keep its port busy. The
// fast suite has a quarter of them; REDLINE_RANKS=4096 has all. The time they take says what else the machine
// does, so the limit is on standing still.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/sha256.h"
#include "comm/coordinator.h"
#include "comm/handshake.h"
#include "comm/membership.h"
#include "comm/protocol.h"
#include "comm/wire.h"
#include "tests/comm/run_ranks.h"

namespace redline::comm {
namespace {

using std::chrono::milliseconds;

constexpr int kThreads = 4;

int rank_count() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return 256;  // a sanitizer looks at the code, and is slow
#else
  const char* asked = std::getenv("REDLINE_RANKS");
  return asked != nullptr ? std::stoi(asked) : 1024;
#endif
}
const int kRanks = rank_count(), kStrangers = kRanks * 125 / 256;  // 2,000 beside 4,096

bool enough_files() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_cur >=
         static_cast<rlim_t>(2 * (kRanks + kStrangers) + 200);  // both ends are in this process
}

// Begins to connect and does not wait.
Socket dial(std::uint16_t port) {
  Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ::connect(socket.fd(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  return socket;
}

// As a rank has it (handshake.cpp): to be connected, and, doubling, for an answer.
constexpr milliseconds kConnectTime{3'000}, kPatience{4'000};

// A rank as far as its joining goes: it answers what it is asked, and comes again when it is turned away.
struct Client {
  int rank = 0;
  Link link{Socket(), MessageReader(kLongestMessage)};
  std::string nonce;
  Clock::time_point next_try{}, since{};
  bool knocked = false, asked = false, let_in = false, here = false;
  int tries = 0, unanswered = 0;

  void listen(const World& world, Clock::time_point now) {
    if (link.socket.fd() < 0) {
      if (now < next_try) return;
      link = {dial(world.master_port), MessageReader(kLongestMessage)};
      ++tries;
      since = now;
      knocked = asked = false;
      nonce = random_bytes(kNonceBytes);
    }
    if (!knocked) knocked = send_some(link.socket, encode(make_knock(world.token, "rank", nonce))) > 0;
    const bool open = link.reader.read_from(link.socket) != MessageReader::State::closed;
    while (const auto message = link.reader.next()) {
      const std::string kind = text_in(*message, kKind);
      asked = true;
      let_in = let_in || kind == kWelcome;
      if (kind == kChallenge)
        send_all(link.socket,
                 encode(make_hello(world.token, "rank", bytes_in(*message, kNonce), nonce,
                                   {{kRun, world.run_id},
                                    {kRank, rank},
                                    {kSize, world.size},
                                    {kHost, fmt::format("node{}", rank / 8)}})),
                 now + milliseconds(1000));
      here = here || (kind == kAll && message->at(kMembers).size() == static_cast<std::size_t>(2 * kRanks));
    }
    const milliseconds patience = knocked ? kPatience * (1 << std::min(unanswered, 4)) : kConnectTime;
    if (here || (open && (asked || now - since < patience))) return;
    if (open && knocked) ++unanswered;
    link.socket = Socket();
    next_try = now + milliseconds(100 + rank % 100);
  }
};

// How far all ranks have come, and whether that is enough.
struct Progress {
  std::atomic<int> let_in = 0, here = 0;
  std::atomic<bool> stands_still = false;

  bool over() const { return here >= kRanks || stands_still; }
  // Returns when all are there, or nobody has come further for a while.
  void watch() {
    constexpr milliseconds kStandstill{60'000};
    Clock::time_point last = Clock::now();
    for (int before = 0; !over(); std::this_thread::sleep_for(milliseconds(20))) {
      const int now = let_in + here;
      if (now != std::exchange(before, now)) last = Clock::now();
      if (Clock::now() - last > kStandstill) stands_still = true;
    }
  }
};

// Some of the ranks; gives how often they had to come.
int join_some(const World& world, int first, int count, Progress& progress) {
  std::vector<Client> clients(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) clients[static_cast<std::size_t>(i)].rank = first + i;
  std::vector<pollfd> entries(clients.size());
  int joined = 0;
  for (Clock::time_point now = Clock::now(), all{}; joined < count && !progress.over(); now = Clock::now()) {
    const bool everyone = now - all > milliseconds(100);  // those too that heard nothing
    if (everyone) all = now;
    for (std::size_t i = 0; i < clients.size(); ++i) {
      Client& client = clients[i];
      if (client.here || (!everyone && entries[i].revents == 0)) continue;
      const bool was_in = client.let_in;
      client.listen(world, now);
      progress.let_in += client.let_in && !was_in ? 1 : 0;
      progress.here += client.here ? 1 : 0;
      joined += client.here ? 1 : 0;
      entries[i] = {client.here ? -1 : client.link.socket.fd(), POLLIN, 0};
    }
    ::poll(entries.data(), entries.size(), 10);
  }
  // They stay until all are there: one that leaves is one that is lost.
  while (!progress.over()) std::this_thread::sleep_for(milliseconds(5));
  int tries = 0;
  for (Client& client : clients) {
    tries += client.tries;
    if (client.here)
      send_all(client.link.socket, encode(Message{{kKind, kBye}}), Clock::now() + milliseconds(10'000));
  }
  return tries;
}

// Strangers: some say nothing, some something else, some prove another token. Each comes again a few times a
// second, whatever became of it.
void hammer(const World& world, int count, const std::atomic<bool>& done, std::atomic<int>& knocks) {
  std::vector<Socket> sockets(static_cast<std::size_t>(count));
  for (std::size_t turn = 0; !done; ++turn) {
    const Clock::time_point next = Clock::now() + milliseconds(200);
    for (std::size_t i = 0; i < sockets.size() && !done; ++i) {
      sockets[i] = dial(world.master_port);
      ++knocks;
      if ((turn + i) % 3 == 0) continue;
      const std::string bytes =
          (turn + i) % 3 == 1 ? std::string("GET / HTTP/1.1\r\n\r\n")
                              : encode(make_knock("another token", "rank", std::string(kNonceBytes, 'c')));
      ::send(sockets[i].fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    std::this_thread::sleep_until(next);
  }
}

TEST(Joining, ThousandsOfRanksComeWhileStrangersHammerThePort) {
  if (!enough_files()) GTEST_SKIP() << "this process may not open enough files";
  World world = options_of(0, kRanks, free_port()).world;
  const TimeLimits limits{milliseconds(3'600'000), milliseconds(3'600'000)};
  const Coordinator coordinator(world, {}, limits);
  std::atomic<bool> done = false;
  std::atomic<int> knocks = 0, tries = 0;
  Progress progress;
  std::vector<std::thread> strangers, ranks;
  for (int i = 0; i < kThreads; ++i)
    strangers.emplace_back([&] { hammer(world, kStrangers / kThreads, done, knocks); });
  // They were there first.
  while (knocks < kStrangers / kThreads * kThreads) std::this_thread::sleep_for(milliseconds(1));
  const Stopwatch watch;
  for (int i = 0; i < kThreads; ++i)
    ranks.emplace_back(
        [&, i] { tries += join_some(world, i * kRanks / kThreads, kRanks / kThreads, progress); });
  progress.watch();
  const double seconds = watch.seconds();
  for (std::thread& thread : ranks) thread.join();
  done = true;
  for (std::thread& thread : strangers) thread.join();
  EXPECT_EQ(progress.let_in, kRanks);
  EXPECT_EQ(progress.here, kRanks);
  RecordProperty("seconds", std::to_string(seconds));
  std::printf("%d ranks joined in %.2f s by %d connections, while %d strangers made %d\n",
              progress.here.load(), seconds, tries.load(), kStrangers, knocks.load());
}

// Strangers who connect as fast as the machine lets them until `done`: one hangs up at once, the next stays
// silent, the last offers another token. Both cores of a small machine are theirs as much as anyone's.
void flood(const World& world, int kind, const std::atomic<bool>& done, std::atomic<int>& knocks) {
  constexpr std::size_t kHeld = 500;  // connections that are left open
  const std::string wrong = encode(make_knock("another token", "rank", std::string(kNonceBytes, 'c')));
  std::vector<Socket> held(kHeld);
  for (std::size_t i = 0; !done; ++i, ++knocks) {
    Socket socket = dial(world.master_port);
    if (kind == 2) ::send(socket.fd(), wrong.data(), wrong.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (kind != 0) held[i % kHeld] = std::move(socket);
  }
}

TEST(Joining, RanksComeThroughAFloodWithoutLimit) {
  constexpr int kFew = 64, kKinds = 3, kLimit = 60;
  const World world = options_of(0, kFew, free_port()).world;
  const TimeLimits limits{milliseconds(kLimit * 1000), milliseconds(kLimit * 1000)};
  const Coordinator coordinator(world, {}, limits);
  std::atomic<bool> done = false;
  std::atomic<int> knocks = 0, here = 0;
  std::vector<std::thread> strangers, ranks;
  for (int kind = 0; kind < kKinds; ++kind)
    strangers.emplace_back([&, kind] { flood(world, kind, done, knocks); });
  while (knocks < 10'000) std::this_thread::sleep_for(milliseconds(1));  // they were there first
  const int before = knocks;
  const Stopwatch watch;
  for (int rank = 0; rank < kFew; ++rank)
    ranks.emplace_back([&, rank] {
      World own = world;
      own.rank = rank;
      try {
        const Membership membership(own, {}, limits);
        ++here;
        // One that leaves is one that is lost.
        while (here < kFew && watch.seconds() < kLimit) std::this_thread::sleep_for(milliseconds(5));
      } catch (const std::exception& what) {
        std::printf("%s\n", what.what());
      }
    });
  for (std::thread& thread : ranks) thread.join();
  const double seconds = watch.seconds();
  done = true;
  for (std::thread& thread : strangers) thread.join();
  EXPECT_EQ(here, kFew);
  std::printf("%d ranks joined in %.2f s, while strangers made %.0f connections a second\n", here.load(),
              seconds, (knocks - before) / seconds);
}

}  // namespace
}  // namespace redline::comm
