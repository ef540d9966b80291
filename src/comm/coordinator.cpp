#include "comm/coordinator.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/ranges.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/quantity.h"
#include "comm/hub.h"
#include "comm/protocol.h"
#include "comm/wire.h"

namespace redline::comm {
namespace {

using std::chrono::milliseconds;

// As kLeaveTime, for ranks that would wait for rank 0 in vain: no restart can help.
constexpr milliseconds kLateTime{15'000};
constexpr std::size_t kNamed = 16;  // ranks in a list of them

struct Rank {
  Hub::Connection* connection = nullptr;  // none before it came and after it is gone
  bool here = false;                      // it came
  std::string address, host;
  std::int64_t process = 0, calls = 0;
  Clock::time_point heard{};
  bool refused = false;  // it was told why it cannot take part
  bool left = false;     // it said goodbye
  bool silent = false;   // it was given up
};

}  // namespace

milliseconds beat_interval(const TimeLimits& limits) {
  return std::min(milliseconds(1000), limits.collective / 10);
}

milliseconds silence_limit(const TimeLimits& limits) { return limits.collective - 3 * beat_interval(limits); }

class Coordinator::Server final : private Hub::Handler {
 public:
  Server(const World& world, Facts facts, const TimeLimits& limits, Keep keep)
      : world_(world),
        facts_(std::move(facts)),
        limits_(limits),
        keep_(std::move(keep)),
        hub_(listen_at(world.master_host, world.master_port, !world.one_machine), "rank", world.token),
        ranks_(static_cast<std::size_t>(world.size)),
        thread_([this] { run(); }) {}

  ~Server() override {
    stop_ = true;
    thread_.join();
  }

  std::string address() const { return hub_.address(world_.master_host); }

 private:
  void run() {
    Clock::time_point before = Clock::now(), stopped{};
    for (;;) {
      hub_.turn(kPoll, *this);
      const Clock::time_point now = Clock::now();
      // If this process itself was stopped, the silence of the others means nothing.
      if (now - before > 20 * kPoll)
        for (Rank& rank : ranks_) rank.heard = now;
      before = now;
      if (now - watched_ >= kPoll) watch(now);
      if (!stop_) continue;
      if (stopped == Clock::time_point{}) stopped = now;
      const bool all_gone = std::ranges::all_of(ranks_, [](const Rank& rank) {
        return rank.connection == nullptr || rank.silent || (rank.left && rank.connection->all_sent());
      });
      const bool late = must_tell_late_ones() && now - stopped < kLateTime;
      if (!late && (all_gone || now - stopped > kLeaveTime)) return;
    }
  }

  // The job cannot begin, whatever is restarted, and some ranks have not heard of it. They would look for
  // rank 0 until their time is up, and end with a code that means "try again".
  bool must_tell_late_ones() const {
    return !cause_.empty() && code_ != static_cast<int>(ExitCode::try_again) &&
           std::ranges::any_of(ranks_, [](const Rank& rank) { return !rank.here && !rank.refused; });
  }

  // Why a peer is refused; `ours` if it belongs to this job, which then cannot begin.
  Hub::Refusal objection(const Message& hello, bool& ours) const {
    // Its job may be about to replace this one.
    if (text_in(hello, kRun) != world_.run_id)
      return {
          fmt::format("it belongs to run '{}', but this is run '{}'", text_in(hello, kRun), world_.run_id),
          true};
    ours = true;
    const std::int64_t rank = number_in(hello, kRank, -1), size = number_in(hello, kSize, -1);
    if (size != world_.size)
      return {fmt::format("it expects {} ranks, but rank 0 expects {}", size, world_.size)};
    if (rank < 0 || rank >= world_.size) return {fmt::format("there is no rank {}", rank)};
    const Rank& known = ranks_[static_cast<std::size_t>(rank)];
    if (known.here) return {fmt::format("rank {} has already joined, from {}", rank, known.address)};
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
    return {fmt::format("{}", fmt::join(differences, "; "))};
  }

  Hub::Refusal hello(Hub::Connection& connection, const Message& hello) override {
    bool ours = false;
    Hub::Refusal refusal = objection(hello, ours);
    if (!refusal.why.empty()) {
      if (ours && present_ < world_.size) {  // a job that is complete goes on without it
        const std::int64_t rank = number_in(hello, kRank, -1);
        if (rank >= 0 && rank < world_.size) ranks_[static_cast<std::size_t>(rank)].refused = true;
        tell_all(fmt::format("rank {} at {} was refused: {}", rank, connection.address(), refusal.why),
                 static_cast<int>(ExitCode::usage));
      }
      return refusal;
    }
    connection.id = static_cast<int>(number_in(hello, kRank, -1));
    Rank& rank = ranks_[static_cast<std::size_t>(connection.id)];
    rank.connection = &connection;
    rank.here = true;
    rank.address = connection.address();
    rank.host = text_in(hello, kHost);
    rank.process = number_in(hello, kProcess, 0);
    rank.heard = Clock::now();
    hub_.expect(++present_ < world_.size);
    return {};
  }

  void welcomed(Hub::Connection& connection) override {
    if (!cause_.empty()) hub_.send(connection, lost_message());
    if (present_ < world_.size) return;
    const auto all = std::make_shared<const std::string>(encode(members()));
    for (const Rank& rank : ranks_)
      if (rank.connection != nullptr) hub_.send(*rank.connection, all);
  }

  // Hosts once, as every rank gets the list: host, address, …; and for each rank which of them, its process.
  Message members() const {
    Message all{{kKind, kAll}, {kHosts, Message::array()}, {kMembers, Message::array()}};
    std::map<std::pair<std::string, std::string>, std::size_t> hosts;
    for (const Rank& rank : ranks_) {
      const std::string address = rank.address.substr(0, rank.address.rfind(':'));
      const auto [host, fresh] = hosts.try_emplace({rank.host, address}, hosts.size());
      if (fresh) {
        all[kHosts].push_back(rank.host);
        all[kHosts].push_back(address);
      }
      all[kMembers].push_back(host->second);
      all[kMembers].push_back(rank.process);
    }
    return all;
  }

  void message(Hub::Connection& connection, const Message& message) override {
    Rank& rank = ranks_[static_cast<std::size_t>(connection.id)];
    rank.heard = Clock::now();
    const std::string kind = text_in(message, kKind);
    if (kind == kSet) {
      keep(text_in(message, kKey), message);
    } else if (kind == kGet) {
      give(connection, text_in(message, kKey));
    } else if (kind == kBeatKind) {
      rank.calls = number_in(message, kCalls, rank.calls);
    } else if (kind == kLate) {
      judge_late(connection.id, number_in(message, kCalls, 0));
    } else if (kind == kAccount) {
      if (keep_) keep_(fmt::format("rank-{}.txt", connection.id), text_in(message, kWhy));
    } else if (kind == kFailed) {
      lose(connection.id, "failed: " + text_in(message, kWhy), number_in(message, kCode, 0));
    } else if (kind == kBye) {
      rank.left = true;
    } else {
      throw DataError("it sent a message of an unknown kind");
    }
  }

  void closed(Hub::Connection& connection, const std::string& why) override {
    Rank& rank = ranks_[static_cast<std::size_t>(connection.id)];
    rank.connection = nullptr;
    std::erase_if(waiting_, [&](const auto& one) { return one.second == &connection; });
    if (!why.empty())
      lose(connection.id, why);
    else if (!rank.left)
      lose(connection.id, "ended without a message: its connection was closed");
  }

  void keep(const std::string& key, const Message& message) {
    const auto value = message.find(kValue);
    if (value == message.end() || !value->is_binary()) throw DataError("a key without a value");
    values_[key] = *value;
    for (auto [at, end] = waiting_.equal_range(key); at != end; ++at)
      hub_.send(*at->second, Message{{kKind, kValue}, {kKey, key}, {kValue, *value}});
    waiting_.erase(key);
  }

  void give(Hub::Connection& connection, const std::string& key) {
    const auto value = values_.find(key);
    if (value == values_.end()) {
      waiting_.emplace(key, &connection);
      return;
    }
    hub_.send(connection, Message{{kKind, kValue}, {kKey, key}, {kValue, value->second}});
  }

  std::string name(int rank) const {
    const Rank& known = ranks_[static_cast<std::size_t>(rank)];
    return fmt::format("rank {} ({}, process {}, {})", rank, known.host, known.process, known.address);
  }

  void lose(int rank, const std::string& what, std::int64_t code = static_cast<int>(ExitCode::try_again)) {
    tell_all(fmt::format("{} {}", name(rank), what), code);
  }

  Message lost_message() const {
    return Message{{kKind, kLost}, {kWhy, cause_}, {kCode, code_}, {kHang, hang_ ? 1 : 0}};
  }

  // The first cause counts; later ones are consequences.
  void tell_all(const std::string& cause, std::int64_t code = static_cast<int>(ExitCode::try_again)) {
    if (!cause_.empty()) return;
    cause_ = cause;
    code_ = code;
    const auto lost = std::make_shared<const std::string>(encode(lost_message()));
    for (const Rank& rank : ranks_)
      if (rank.connection != nullptr) hub_.send(*rank.connection, lost);
  }

  // The same for a hung job: names the rank that is behind, and asks every rank what it is doing.
  void tell_of_hang(const std::string& cause) {
    if (!cause_.empty()) return;
    hang_ = true;
    tell_all(cause);
    if (!keep_) return;
    const Clock::time_point now = Clock::now();
    std::string text = fmt::format("{} {}\n", utc_timestamp(), cause);
    for (int rank = 0; rank < world_.size; ++rank) {
      const Rank& known = ranks_[static_cast<std::size_t>(rank)];
      text += known.here ? fmt::format("  {}: {} begun when last heard, {:.1f} s ago\n", name(rank),
                                       counted(known.calls, "call"),
                                       std::chrono::duration<double>(now - known.heard).count())
                         : fmt::format("  rank {} did not join\n", rank);
    }
    keep_("ranks.txt", text + "\n");
  }

  // A call took too long: the rank that has begun the fewest calls keeps the others waiting.
  void judge_late(int reporter, std::int64_t calls) {
    int behind = -1;
    std::int64_t fewest = calls;
    for (int rank = 0; rank < world_.size; ++rank) {
      const Rank& known = ranks_[static_cast<std::size_t>(rank)];
      if (!known.here || known.calls >= fewest) continue;
      behind = rank;
      fewest = known.calls;
    }
    const double limit = seconds(limits_.collective);
    if (behind >= 0)
      tell_of_hang(fmt::format("{} kept the others waiting for more than {:g} s, although it is alive",
                               name(behind), limit));
    else if (calls <= 1)  // which is to connect
      tell_of_hang(fmt::format(
          "{} could not connect to all of its peers within {:g} s: are the ports of "
          "net.ipv4.ip_local_port_range, at which ranks listen, open between the machines? --comm-interface "
          "chooses another network",
          name(reporter), limit));
    else
      tell_of_hang(fmt::format(
          "{} waited more than {:g} s for data from its peers: the network between them is not working",
          name(reporter), limit));
  }

  void watch(Clock::time_point now) {
    watched_ = now;
    const bool beat = now - last_beat_ >= beat_interval(limits_);
    if (beat) last_beat_ = now;
    static const auto kBeat = std::make_shared<const std::string>(encode(Message{{kKind, kBeatKind}}));
    for (int id = 0; id < world_.size; ++id) {
      Rank& rank = ranks_[static_cast<std::size_t>(id)];
      if (rank.connection == nullptr || rank.left) continue;
      if (beat && rank.connection->all_sent()) hub_.send(*rank.connection, kBeat);
      if (now - rank.heard > silence_limit(limits_)) {
        rank.silent = true;
        tell_of_hang(
            fmt::format("{} gave no sign of life for {:g} s: it was stopped, or the network to it is cut",
                        name(id), seconds(silence_limit(limits_))));
      }
    }
    if (present_ == world_.size || !cause_.empty()) return;
    if (now - begun_ > limits_.join) {
      tell_all(
          fmt::format("{} did not join at {} within {:g} s", missing(), address(), seconds(limits_.join)));
    } else if (now - reminded_ > kReminder) {
      reminded_ = now;
      log_info("waiting for {} at {}, for {:.0f} s more", missing(), address(),
               seconds(std::chrono::ceil<milliseconds>(limits_.join - (now - begun_))));
    }
  }

  // "ranks 1, 2 of 3"
  std::string missing() const {
    std::vector<int> ranks;
    for (int rank = 0; rank < world_.size && ranks.size() <= kNamed; ++rank)
      if (!ranks_[static_cast<std::size_t>(rank)].here) ranks.push_back(rank);
    const bool more = ranks.size() > kNamed;
    if (more) ranks.resize(kNamed);
    return fmt::format(
        "rank{} {}{} of {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "),
        more ? fmt::format(" and {} more", world_.size - present_ - static_cast<int>(kNamed)) : "",
        world_.size);
  }

  const World world_;
  const Facts facts_;
  const TimeLimits limits_;
  const Keep keep_;
  Hub hub_;
  std::vector<Rank> ranks_;
  int present_ = 0;
  std::map<std::string, Message> values_;
  std::multimap<std::string, Hub::Connection*> waiting_;  // for a key
  std::string cause_;                                     // of the job's end; empty while all is well
  std::int64_t code_ = 0;                                 // with which ranks end
  bool hang_ = false;
  const Clock::time_point begun_ = Clock::now();
  Clock::time_point last_beat_{}, watched_{}, reminded_ = begun_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;  // last: it uses the others
};

Coordinator::Coordinator(const World& world, Facts facts, const TimeLimits& limits, Keep keep)
    : server_(std::make_unique<Server>(world, std::move(facts), limits, std::move(keep))) {
  if (world.token.empty() && !world.one_machine)
    log_warning(
        "the ranks have no token: anyone who can reach {} can join this job; set REDLINE_TOKEN_FILE to a "
        "file with the same token on every machine",
        address());
}

Coordinator::~Coordinator() = default;

std::string Coordinator::address() const { return server_->address(); }

}  // namespace redline::comm
