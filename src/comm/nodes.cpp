#include "comm/nodes.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/log.h"
#include "base/machine.h"
#include "base/sha256.h"
#include "comm/communicator.h"
#include "comm/handshake.h"
#include "comm/hub.h"
#include "comm/protocol.h"
#include "comm/world.h"

namespace redline::comm {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kBeat{1'000};
constexpr milliseconds kSilence{60'000};      // after which a connection is given up; the ranks notice sooner
constexpr milliseconds kIdleSilence{10'000};  // the same, once nothing runs or what runs has failed
constexpr milliseconds kGone{5'000};          // for a launcher whose connection was closed to come back
constexpr milliseconds kFresh{3'000};         // heard so lately, a launcher is there
constexpr milliseconds kNodeSendTime{2'000}, kReconnect{1'000};

// To node 0: which attempt runs, and how it ended. From it: orders.
constexpr const char *kNode = "node", *kNodesKey = "nodes", *kAttempt = "attempt", *kIndex = "index",
                     *kFinal = "final", *kLast = "last", *kBusy = "busy", *kEndedKind = "ended",
                     *kStart = "start", *kStop = "stop", *kEnd = "end";
constexpr int kNone = -1;  // no attempt

}  // namespace

class Nodes::Server final : private Hub::Handler {
 public:
  explicit Server(const NodesOptions& options)
      : options_(options),
        hub_(listen_at(options.host, options.port, !is_loopback_name(options.host)), "node", options.token),
        nodes_(static_cast<std::size_t>(options.nodes)),
        thread_([this] { run(); }) {}

  ~Server() override {
    stop_ = true;
    thread_.join();
  }

 private:
  struct Launcher {
    Hub::Connection* connection = nullptr;
    std::string host;
    Clock::time_point heard{}, lost{};
    bool takes_part = false;  // in this attempt
    bool running = false;     // its ranks, as far as known
    bool busy = false;        // with ranks of an attempt before this launcher, which are to end first
    int code = 0;
  };

  void run() {
    Clock::time_point stopped{}, beaten{};
    for (;;) {
      hub_.expect(std::ranges::any_of(nodes_, [](const Launcher& n) { return n.connection == nullptr; }));
      hub_.turn(kPoll, *this);
      const Clock::time_point now = Clock::now();
      if (now - beaten >= kBeat) {
        beaten = now;
        for (const Launcher& node : nodes_)
          if (node.connection != nullptr && node.connection->all_sent())
            hub_.send(*node.connection, Message{{kKind, kBeatKind}});
      }
      if (phase_ == Phase::gathering) gather(now);
      if (phase_ == Phase::running) watch(now);
      if (!stop_) continue;
      if (phase_ != Phase::over) finish(final_code_.value_or(kTryAgain), "node 0's launcher was stopped");
      if (stopped == Clock::time_point{}) stopped = now;
      const bool gone =
          std::ranges::none_of(nodes_, [](const Launcher& n) { return n.connection != nullptr; });
      if (gone || now - stopped > kLeaveTime) return;
    }
  }

  Hub::Refusal hello(Hub::Connection& connection, const Message& hello) override {
    if (text_in(hello, kRun) != options_.run_id)
      return {
          fmt::format("it belongs to run '{}', but this is run '{}'", text_in(hello, kRun), options_.run_id),
          true};
    if (number_in(hello, kNodesKey, 0) != options_.nodes)
      return {fmt::format("it expects {} machines, but node 0 expects {}", number_in(hello, kNodesKey, 0),
                          options_.nodes)};
    if (number_in(hello, kSize, 0) != ranks_a_node_ && ranks_a_node_ != 0)
      return {fmt::format("it starts {} processes, the others {}: use the same -g everywhere",
                          number_in(hello, kSize, 0), ranks_a_node_)};
    const std::int64_t id = number_in(hello, kNode, -1);
    if (id < 0 || id >= options_.nodes) return {fmt::format("there is no node {}", id)};
    Launcher& node = nodes_[static_cast<std::size_t>(id)];
    if (node.connection != nullptr) {
      // Two live launchers with one number are a mistake; a restarted one may join before the end of the old
      // one is noticed.
      if (Clock::now() - node.heard < kFresh)
        return {fmt::format("node {} has already joined, from {}", id, node.connection->address()), true};
      hub_.close(*node.connection);
    }
    connection.id = static_cast<int>(id);
    node.connection = &connection;
    node.host = text_in(hello, kHost);
    node.heard = Clock::now();
    ranks_a_node_ = number_in(hello, kSize, 0);
    const bool goes_on = phase_ == Phase::running && text_in(hello, kAttempt) == attempt_id_;
    node.busy = !goes_on && number_in(hello, kBusy, 0) != 0;
    if (node.running && !goes_on) ended(static_cast<int>(id), {attempt_, kTryAgain, false, "was restarted"});
    return {};
  }

  void welcomed(Hub::Connection& connection) override {
    if (phase_ == Phase::over)
      hub_.send(connection, end_message());
    else if (nodes_[static_cast<std::size_t>(connection.id)].busy)
      hub_.send(connection, Message{{kKind, kStop}, {kWhy, "node 0's launcher was restarted"}});
  }

  void message(Hub::Connection& connection, const Message& message) override {
    Launcher& node = nodes_[static_cast<std::size_t>(connection.id)];
    node.heard = Clock::now();
    if (text_in(message, kKind) != kEndedKind) return;  // a beat
    node.busy = false;
    const bool current = phase_ == Phase::running && text_in(message, kAttempt) == attempt_id_;
    ended(connection.id, {current ? attempt_ : kNone, static_cast<int>(number_in(message, kCode, kTryAgain)),
                          number_in(message, kFinal, 0) != 0, text_in(message, kWhy)});
  }

  void closed(Hub::Connection& connection, const std::string&) override {
    Launcher& node = nodes_[static_cast<std::size_t>(connection.id)];
    if (node.connection != &connection) return;  // another took its place
    node.connection = nullptr;
    node.lost = Clock::now();
  }

  std::string name(int id) const {
    const std::string& host = nodes_[static_cast<std::size_t>(id)].host;
    return host.empty() ? fmt::format("node {}", id) : fmt::format("node {} ({})", id, host);
  }

  void ended(int id, const Ended& how) {
    Launcher& node = nodes_[static_cast<std::size_t>(id)];
    if (how.final && how.code != 0 && !final_code_) final_code_ = how.code;
    if (phase_ == Phase::gathering && how.final)
      return finish(how.code, fmt::format("{} {}", name(id), how.why));
    if (phase_ != Phase::running || how.attempt != attempt_ || !node.running) return;
    node.running = false;
    node.code = how.code;
    if (how.code != 0 && why_.empty()) {
      why_ = fmt::format("{} {}", name(id), how.why);
      for (const Launcher& other : nodes_)
        if (other.running && other.connection != nullptr)
          hub_.send(*other.connection, Message{{kKind, kStop}, {kAttempt, attempt_}, {kWhy, why_}});
    }
  }

  static bool is_here(const Launcher& node, Clock::time_point now) {
    return node.connection != nullptr && now - node.heard < kIdleSilence && !node.busy;
  }

  // Waits until enough launchers have joined to begin.
  void gather(Clock::time_point now) {
    std::vector<int> missing;
    for (int id = 0; id < options_.nodes; ++id)
      if (!is_here(nodes_[static_cast<std::size_t>(id)], now)) missing.push_back(id);
    const auto waited = now - since_;
    const int here = options_.nodes - static_cast<int>(missing.size());
    if (missing.empty() || (here >= options_.min_nodes && waited > options_.elastic_wait))
      return begin(now, missing);
    const std::string text = fmt::format("node{} {} of {}", missing.size() == 1 ? "" : "s",
                                         fmt::join(missing, ", "), options_.nodes);
    if (waited > options_.patience)
      return finish(kTryAgain, fmt::format("{} did not join at {} within {:g} s", text,
                                           hub_.address(options_.host), seconds(options_.patience)));
    if (now - reminded_ < kReminder) return;
    reminded_ = now;
    const bool enough = here >= options_.min_nodes;
    log_info("waiting for {} at {}, for {:.0f} s more{}", text, hub_.address(options_.host),
             seconds((enough ? options_.elastic_wait : options_.patience) - waited),
             enough ? "; then the job starts without" : "");
  }

  void begin(Clock::time_point now, const std::vector<int>& missing) {
    const int count = options_.nodes - static_cast<int>(missing.size());
    phase_ = Phase::running;
    ++attempt_;
    attempt_id_ = fmt::format("{}.{}.{}", options_.run_id, nonce_, attempt_);
    why_.clear();
    if (!missing.empty())
      log_warning("starting with {} of {} nodes: {} did not join", count, options_.nodes,
                  fmt::join(missing, ", "));
    int index = 0;
    for (Launcher& node : nodes_) {
      node.takes_part = node.running = is_here(node, now);
      node.code = 0;
      if (!node.running) continue;
      hub_.send(*node.connection, Message{{kKind, kStart},
                                          {kAttempt, attempt_},
                                          {kIndex, index++},
                                          {kNodesKey, count},
                                          {kLast, attempt_ >= options_.max_restarts ? 1 : 0},
                                          {kRun, attempt_id_}});
    }
  }

  void watch(Clock::time_point now) {
    bool all_ended = true;
    for (int id = 0; id < options_.nodes; ++id) {
      Launcher& node = nodes_[static_cast<std::size_t>(id)];
      if (node.connection != nullptr && now - node.heard > (why_.empty() ? kSilence : kIdleSilence)) {
        hub_.close(*node.connection);
        node.connection = nullptr;
        node.lost = node.heard;
      }
      if (node.running && node.connection == nullptr && now - node.lost > kGone)
        ended(id, {attempt_, kTryAgain, false, "has lost its launcher"});
      all_ended = all_ended && !node.running;
    }
    if (!all_ended) return;
    const bool good =
        std::ranges::all_of(nodes_, [](const Launcher& node) { return !node.takes_part || node.code == 0; });
    if (good) return finish(0, "");
    if (final_code_) return finish(*final_code_, why_);
    if (attempt_ >= options_.max_restarts) return finish(kTryAgain, why_);
    log_warning("{}: restarting the job (restart {} of {})", why_, attempt_ + 1, options_.max_restarts);
    phase_ = Phase::gathering;
    since_ = reminded_ = now;
  }

  void finish(int code, const std::string& why) {
    phase_ = Phase::over;
    code_ = code;
    why_ = why;
    for (const Launcher& node : nodes_)
      if (node.connection != nullptr) hub_.send(*node.connection, end_message());
  }

  Message end_message() const { return Message{{kKind, kEnd}, {kCode, code_}, {kWhy, why_}}; }

  enum class Phase { gathering, running, over };

  const NodesOptions options_;
  const std::string nonce_ = hex(random_bytes(4));  // tells this launcher's attempts from those before it
  Hub hub_;
  std::vector<Launcher> nodes_;
  Phase phase_ = Phase::gathering;
  int attempt_ = kNone;
  std::string attempt_id_;
  std::int64_t ranks_a_node_ = 0;
  std::string why_;  // this attempt, or the job, ended
  std::optional<int> final_code_;
  int code_ = 0;
  Clock::time_point since_ = Clock::now(), reminded_ = since_;  // it gathers
  std::atomic<bool> stop_ = false;
  std::thread thread_;  // last: it uses the others
};

// Used by one thread, the launcher's.
class Nodes::Client {
 public:
  explicit Client(const NodesOptions& options) : options_(options) {}

  ~Client() {
    if (link_) send_all(link_->socket, encode(Message{{kKind, kBye}}), Clock::now());
  }

  Order next(const std::function<void()>& poll) {
    for (;;) {
      try {
        connect(over_ ? kGone : options_.patience, poll);
      } catch (const PeerError& gone) {
        if (!over_) throw;
        Order end;  // node 0 would say no more than that
        end.code = code_;
        if (code_ != 0) end.why = gone.what();
        return end;
      }
      if (const auto order = link_ ? turn() : std::nullopt) {
        if (order->kind == Order::Kind::start) {
          attempt_id_ = order->run_id;
          running_ = true;
          over_ = false;
          report_ = Message();
        }
        if (order->kind != Order::Kind::stop) return *order;
      }
      if (poll) poll();
      wait();
    }
  }

  std::optional<Order> check() {
    if (!link_ && Clock::now() >= retry_) {
      try {
        connect(kPoll, {});
      } catch (const Error& what) {
        log_debug("{}", what.what());
        retry_ = Clock::now() + kReconnect;
      }
    }
    if (!link_) return {};
    const auto order = turn();
    return order && order->kind != Order::Kind::start ? order : std::nullopt;
  }

  void report(const Ended& ended) {
    running_ = false;
    code_ = ended.code;
    over_ = code_ == 0 || last_;
    report_ = Message{{kKind, kEndedKind},
                      {kAttempt, attempt_id_},
                      {kCode, ended.code},
                      {kFinal, ended.final ? 1 : 0},
                      {kWhy, ended.why}};
    if (link_) say();
  }

 private:
  void connect(milliseconds limit, const std::function<void()>& poll) {
    if (link_) return;
    link_ = introduce({.host = options_.host,
                       .port = options_.port,
                       .who = fmt::format("node {}", options_.node),
                       .whom = "node 0",
                       .role = "node",
                       .token = options_.token,
                       .body = {{kRun, options_.run_id},
                                {kNode, options_.node},
                                {kNodesKey, options_.nodes},
                                {kSize, options_.processes},
                                {kAttempt, attempt_id_},
                                {kBusy, running_ ? 1 : 0},
                                {kHost, inspect_machine().hostname}},
                       .deadline = Clock::now() + limit,
                       .limit_s = seconds(limit),
                       .poll = poll});
    heard_ = beaten_ = Clock::now();
    say();
  }

  void say() {
    if (!report_.is_null() && !send_all(link_->socket, encode(report_), Clock::now() + kNodeSendTime))
      link_.reset();
  }

  // Messages of node 0; heartbeats.
  std::optional<Order> turn() {
    const Clock::time_point now = Clock::now();
    const bool open = link_->reader.read_from(link_->socket) != MessageReader::State::closed;
    try {
      while (const auto message = link_->reader.next()) {
        heard_ = now;
        if (auto order = order_in(*message)) return order;
      }
    } catch (const DataError& what) {
      throw PeerError(fmt::format("node 0 at {} sent {}", options_.host, what.what()));
    }
    bool lives = open && now - heard_ < (running_ ? kSilence : over_ ? kGone : kIdleSilence);
    if (lives && now - beaten_ >= kBeat) {
      beaten_ = now;
      lives = send_all(link_->socket, encode(Message{{kKind, kBeatKind}}), now + kNodeSendTime);
    }
    if (!lives) link_.reset();
    return {};
  }

  std::optional<Order> order_in(const Message& message) {
    Order order;
    const std::string kind = text_in(message, kKind);
    if (kind == kStart)
      order.kind = Order::Kind::start;
    else if (kind == kStop)
      order.kind = Order::Kind::stop;
    else if (kind != kEnd)
      return {};
    constexpr std::int64_t kMost = 1 << 20;
    const auto number = [&](const char* key, std::int64_t otherwise) {
      return static_cast<int>(std::clamp<std::int64_t>(number_in(message, key, otherwise), 0, kMost));
    };
    order.attempt = number(kAttempt, 0);
    order.index = number(kIndex, 0);
    order.nodes = std::max(1, number(kNodesKey, 1));
    order.run_id = text_in(message, kRun);
    order.why = text_in(message, kWhy);
    order.code = number(kCode, kTryAgain);
    if (order.kind == Order::Kind::start) last_ = number(kLast, 0) != 0;
    return order;
  }

  void wait() const {
    pollfd entry{link_ ? link_->socket.fd() : -1, POLLIN, 0};
    ::poll(&entry, 1, static_cast<int>(kPoll.count()));
  }

  const NodesOptions options_;
  std::optional<Link> link_;
  // How the ranks ended, kept until the next attempt: the message may be lost with the connection.
  Message report_;
  std::string attempt_id_;  // of the last that this node took part in
  bool running_ = false;
  int code_ = 0;       // with which the ranks ended
  bool last_ = false;  // no attempt follows the present one when it fails
  bool over_ = false;  // the ranks ended, and nothing is left to do but to hear of the others
  Clock::time_point heard_{}, beaten_{}, retry_{};
};

Nodes::Nodes(const NodesOptions& options)
    : server_(options.node == 0 ? std::make_unique<Server>(options) : nullptr),
      client_(std::make_unique<Client>(options)) {}

Nodes::~Nodes() {
  client_.reset();  // before the server, which waits for it
}

Order Nodes::next(const std::function<void()>& poll) { return client_->next(poll); }

std::optional<Order> Nodes::check() { return client_->check(); }

void Nodes::report(const Ended& ended) { client_->report(ended); }

}  // namespace redline::comm
