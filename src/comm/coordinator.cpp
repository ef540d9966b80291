#include "comm/coordinator.h"

#include <poll.h>

#include <algorithm>
#include <atomic>
#include <list>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/log.h"
#include "comm/protocol.h"
#include "comm/wire.h"

namespace redline::comm {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kStrangerTime{10'000};  // to say who one is
constexpr milliseconds kLeaveTime{5'000};      // that rank 0 stays for the others at the end
constexpr milliseconds kTurn{50};
constexpr std::size_t kMostStrangers = 256;

// Takes the same time however much of it is right.
bool same_secret(const std::string& a, const std::string& b) {
  unsigned char difference = a.size() == b.size() ? 0 : 1;
  for (std::size_t i = 0; i < a.size(); ++i)
    difference = static_cast<unsigned char>(difference | (a[i] ^ (i < b.size() ? b[i] : 0)));
  return difference == 0;
}

struct Peer {
  Socket socket;
  std::string address;
  MessageReader reader{kLongestHello};
  std::string unsent;
  Clock::time_point heard = Clock::now();
  int rank = -1;  // none before it was let in
  std::string host;
  std::int64_t process = 0, calls = 0;
  bool left = false;     // it said goodbye
  bool silent = false;   // it was given up
  bool closed = false;   // the connection is over
  bool closing = false;  // nothing more is expected from it
};

}  // namespace

milliseconds beat_interval(const TimeLimits& limits) {
  return std::min(milliseconds(1000), limits.collective / 10);
}

milliseconds silence_limit(const TimeLimits& limits) { return limits.collective - 3 * beat_interval(limits); }

class Coordinator::Server {
 public:
  Server(const World& world, Facts facts, const TimeLimits& limits)
      : world_(world),
        facts_(std::move(facts)),
        limits_(limits),
        listener_(listen_at(world.master_host, world.master_port, !world.one_machine)),
        members_(static_cast<std::size_t>(world.size)),
        thread_([this] { run(); }) {}

  ~Server() {
    stop_ = true;
    thread_.join();
  }

  std::string address() const { return own_address(listener_, true); }

 private:
  void run() {
    Clock::time_point before = Clock::now(), stopped{};
    for (;;) {
      wait();
      const Clock::time_point now = Clock::now();
      // A process that was stopped itself has heard nobody meanwhile: their silence means nothing.
      if (now - before > 20 * kTurn)
        for (Peer& peer : peers_) peer.heard = now;
      before = now;
      accept_all();
      for (Peer& peer : peers_) read(peer);
      watch(now);
      for (Peer& peer : peers_) flush(peer);
      peers_.remove_if([](const Peer& peer) { return peer.closed && peer.rank < 0; });
      if (!stop_) continue;
      if (stopped == Clock::time_point{}) stopped = now;
      const bool all_gone = std::ranges::all_of(
          peers_, [](const Peer& p) { return p.closed || p.silent || (p.left && p.unsent.empty()); });
      if (all_gone || now - stopped > kLeaveTime) return;
    }
  }

  void wait() {
    std::vector<pollfd> entries{{listener_.fd(), POLLIN, 0}};
    for (const Peer& peer : peers_) {
      if (peer.closed) continue;
      entries.push_back(
          {peer.socket.fd(), static_cast<short>(POLLIN | (peer.unsent.empty() ? 0 : POLLOUT)), 0});
    }
    ::poll(entries.data(), entries.size(), static_cast<int>(kTurn.count()));
  }

  void accept_all() {
    for (;;) {
      Socket socket = accept_from(listener_);
      if (socket.fd() < 0) return;
      const auto strangers = std::ranges::count_if(peers_, [](const Peer& peer) { return peer.rank < 0; });
      if (static_cast<std::size_t>(strangers) >= kMostStrangers) continue;  // closes it
      Peer peer;
      peer.address = peer_address(socket, true);
      peer.socket = std::move(socket);
      peers_.push_back(std::move(peer));
    }
  }

  void read(Peer& peer) {
    if (peer.closed) return;
    const MessageReader::State state = peer.reader.read_from(peer.socket);
    try {
      while (const auto message = peer.reader.next()) {
        peer.heard = Clock::now();
        if (!peer.closing) handle(peer, *message);
      }
    } catch (const Error& what) {
      if (peer.rank < 0)
        log_warning("closed a connection from {}: {}", peer.address, what.what());
      else
        lose(peer, what.what());
      close(peer);
      return;
    }
    if (state != MessageReader::State::closed) return;
    if (peer.rank >= 0 && !peer.left) lose(peer, "ended without a word: its connection was closed");
    close(peer);
  }

  static void close(Peer& peer) {
    peer.closed = true;
    peer.socket = Socket();
    peer.unsent.clear();
  }

  void handle(Peer& peer, const Message& message) {
    const std::string kind = text_in(message, kKind);
    if (peer.rank < 0) {
      if (kind != kHello) throw DataError("it did not say who it is");
      admit(peer, message);
    } else if (kind == kSet) {
      keep(text_in(message, kKey), message);
    } else if (kind == kGet) {
      give(peer, text_in(message, kKey));
    } else if (kind == kBeatKind) {
      peer.calls = number_in(message, kCalls, peer.calls);
    } else if (kind == kLate) {
      judge_late(peer, number_in(message, kCalls, 0));
    } else if (kind == kFailed) {
      lose(peer, "failed: " + text_in(message, kWhy));
    } else if (kind == kBye) {
      peer.left = true;
    } else {
      throw DataError("it sent a message of an unknown kind");
    }
  }

  // What keeps a peer out; `ours` when it is of this job all the same, which then cannot begin.
  std::string objection(const Message& hello, bool& ours) const {
    if (number_in(hello, kProtocol, 0) != kProtocolVersion)
      return fmt::format("it speaks version {} of the protocol, and rank 0 version {}",
                         number_in(hello, kProtocol, 0), kProtocolVersion);
    if (!same_secret(world_.token, text_in(hello, kToken))) return "its token is not this job's";
    if (text_in(hello, kRun) != world_.run_id)
      return fmt::format("it belongs to run '{}', and this is run '{}'", text_in(hello, kRun), world_.run_id);
    ours = true;
    const std::int64_t rank = number_in(hello, kRank, -1), size = number_in(hello, kSize, -1);
    if (size != world_.size)
      return fmt::format("it counts {} ranks, and rank 0 counts {}", size, world_.size);
    if (rank < 0 || rank >= world_.size) return fmt::format("there is no rank {}", rank);
    if (members_[static_cast<std::size_t>(rank)] != nullptr)
      return fmt::format("rank {} is there already, from {}", rank,
                         members_[static_cast<std::size_t>(rank)]->address);
    const auto theirs = hello.find(kFacts);
    std::vector<std::string> differences;
    for (const auto& [name, value] : facts_) {
      const std::string other =
          theirs == hello.end() || !theirs->is_object() ? "" : text_in(*theirs, name.c_str());
      if (other != value)
        differences.push_back(fmt::format("{} is '{}' there and '{}' on rank 0", name, other, value));
    }
    constexpr std::size_t kShown = 5;
    const std::size_t all = differences.size();
    if (all > kShown) {
      differences.resize(kShown);
      differences.push_back(fmt::format("and {} more", all - kShown));
    }
    return fmt::format("{}", fmt::join(differences, "; "));
  }

  void admit(Peer& peer, const Message& hello) {
    bool ours = false;
    const std::string why = objection(hello, ours);
    if (!why.empty()) {
      log_warning("refused {}: {}", peer.address, why);
      send(peer, {{kKind, kRefused}, {kWhy, why}});
      peer.closing = true;
      if (ours && present_ < world_.size)  // a job that is complete goes on without it
        tell_all(
            fmt::format("rank {} at {} was refused: {}", number_in(hello, kRank, -1), peer.address, why));
      return;
    }
    peer.rank = static_cast<int>(number_in(hello, kRank, -1));
    peer.host = text_in(hello, kHost);
    peer.process = number_in(hello, kProcess, 0);
    peer.reader.allow(kLongestMessage);
    members_[static_cast<std::size_t>(peer.rank)] = &peer;
    if (!cause_.empty()) send(peer, {{kKind, kLost}, {kWhy, cause_}});
    if (++present_ < world_.size) return;
    Message all{{kKind, kAll}, {kMembers, Message::array()}};
    for (const Peer* member : members_)
      all[kMembers].push_back(
          {{kHost, member->host}, {kProcess, member->process}, {kAddress, member->address}});
    for (Peer* member : members_) send(*member, all);
  }

  void keep(const std::string& key, const Message& message) {
    const auto value = message.find(kValue);
    if (value == message.end() || !value->is_binary()) throw DataError("a key without a value");
    values_[key] = *value;
    for (auto [at, end] = waiting_.equal_range(key); at != end; ++at)
      send(*at->second, {{kKind, kValue}, {kKey, key}, {kValue, *value}});
    waiting_.erase(key);
  }

  void give(Peer& peer, const std::string& key) {
    const auto value = values_.find(key);
    if (value == values_.end()) {
      waiting_.emplace(key, &peer);
      return;
    }
    send(peer, {{kKind, kValue}, {kKey, key}, {kValue, value->second}});
  }

  std::string name(const Peer& peer) const {
    return fmt::format("rank {} ({}, process {}, {})", peer.rank, peer.host, peer.process, peer.address);
  }

  void lose(Peer& peer, const std::string& what) { tell_all(fmt::format("{} {}", name(peer), what)); }

  // The first cause is the cause; what follows follows from it.
  void tell_all(const std::string& cause) {
    if (!cause_.empty()) return;
    cause_ = cause;
    for (Peer* member : members_)
      if (member != nullptr) send(*member, {{kKind, kLost}, {kWhy, cause_}});
  }

  // Some call took too long: whoever has begun the fewest keeps the others waiting.
  void judge_late(const Peer& reporter, std::int64_t calls) {
    const Peer* behind = nullptr;
    for (const Peer* member : members_)
      if (member != nullptr && member->calls < calls && (behind == nullptr || member->calls < behind->calls))
        behind = member;
    const double seconds = std::chrono::duration<double>(limits_.collective).count();
    if (behind != nullptr)
      tell_all(fmt::format("{} kept the others waiting for more than {:g} s, though it lives", name(*behind),
                           seconds));
    else
      tell_all(fmt::format(
          "{} waited more than {:g} s for numbers from its peers: the network between them stands still",
          name(reporter), seconds));
  }

  void watch(Clock::time_point now) {
    const bool beat = now - last_beat_ >= beat_interval(limits_);
    if (beat) last_beat_ = now;
    for (Peer& peer : peers_) {
      if (peer.closed || peer.left) continue;
      if (peer.rank < 0) {
        if (now - peer.heard > kStrangerTime || (peer.closing && peer.unsent.empty())) close(peer);
        continue;
      }
      if (beat && peer.unsent.empty()) send(peer, {{kKind, kBeatKind}});
      if (now - peer.heard > silence_limit(limits_)) {
        peer.silent = true;
        lose(peer, fmt::format("gave no sign of life for {:g} s: it was stopped, or the network to it is cut",
                               std::chrono::duration<double>(silence_limit(limits_)).count()));
      }
    }
    if (present_ < world_.size && now - begun_ > limits_.join) {
      std::vector<int> missing;
      for (int rank = 0; rank < world_.size; ++rank)
        if (members_[static_cast<std::size_t>(rank)] == nullptr) missing.push_back(rank);
      const bool one = missing.size() == 1;
      constexpr std::size_t kShown = 16;
      const bool more = missing.size() > kShown;
      if (more) missing.resize(kShown);
      tell_all(fmt::format("rank{} {}{} of {} did not come to {} within {:g} s", one ? "" : "s",
                           fmt::join(missing, ", "), more ? ", …" : "", world_.size, address(),
                           std::chrono::duration<double>(limits_.join).count()));
    }
  }

  static void send(Peer& peer, const Message& message) {
    if (!peer.closed) peer.unsent += encode(message);
  }

  static void flush(Peer& peer) {
    if (peer.closed || peer.unsent.empty()) return;
    const std::size_t sent = send_some(peer.socket, peer.unsent);
    peer.unsent.erase(0, sent);
  }

  const World world_;
  const Facts facts_;
  const TimeLimits limits_;
  const Socket listener_;
  std::list<Peer> peers_;       // stay where they are; a member stays to the end
  std::vector<Peer*> members_;  // by rank; null before it came
  int present_ = 0;
  std::map<std::string, Message> values_;
  std::multimap<std::string, Peer*> waiting_;  // for a key
  std::string cause_;                          // of the job's end; empty while all is well
  const Clock::time_point begun_ = Clock::now();
  Clock::time_point last_beat_{};
  std::atomic<bool> stop_ = false;
  std::thread thread_;  // last: it uses the others
};

Coordinator::Coordinator(const World& world, Facts facts, const TimeLimits& limits)
    : server_(std::make_unique<Server>(world, std::move(facts), limits)) {}

Coordinator::~Coordinator() = default;

std::string Coordinator::address() const { return server_->address(); }

}  // namespace redline::comm
