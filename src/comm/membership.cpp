#include "comm/membership.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/machine.h"
#include "comm/coordinator.h"
#include "comm/protocol.h"

namespace redline::comm {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kRetry{200};
constexpr milliseconds kSendTime{5'000};
constexpr milliseconds kTurn{50};

void check_stop(const std::atomic<bool>* stop) {
  if (stop != nullptr && stop->load()) throw PeerError("stopped while waiting for the other ranks");
}

double seconds(milliseconds time) { return std::chrono::duration<double>(time).count(); }

}  // namespace

Membership::Membership(const World& world, const Facts& facts, const TimeLimits& limits,
                       const std::atomic<bool>* stop)
    : world_(world), limits_(limits), reader_(kLongestMessage) {
  const Clock::time_point deadline = Clock::now() + limits.join;
  std::string why = "no answer";
  for (;;) {
    socket_ = connect_to(world.master_host, world.master_port, deadline, why);
    if (socket_.fd() >= 0) break;
    if (Clock::now() + kRetry >= deadline) {
      throw PeerError(
          fmt::format("rank {} cannot reach rank 0 at {} port {} within {:g} s: {}; is rank 0 running, and "
                      "is the port open?",
                      world.rank, world.master_host, world.master_port, seconds(limits.join), why));
    }
    check_stop(stop);
    std::this_thread::sleep_for(kRetry);
  }
  introduce(facts);
  thread_ = std::thread([this] { run(); });
  try {
    join(stop);
  } catch (...) {
    stop_ = true;
    thread_.join();
    throw;
  }
}

Membership::~Membership() {
  send(Message{{kKind, kBye}});
  stop_ = true;
  thread_.join();
}

void Membership::introduce(const Facts& facts) {
  Message named = Message::object();
  for (const auto& [name, value] : facts) named[name] = value;
  send({{kKind, kHello},
        {kProtocol, kProtocolVersion},
        {kToken, world_.token},
        {kRun, world_.run_id},
        {kRank, world_.rank},
        {kSize, world_.size},
        {kFacts, std::move(named)},
        {kHost, inspect_machine().hostname},
        {kProcess, static_cast<std::int64_t>(::getpid())}});
}

void Membership::join(const std::atomic<bool>* stop) {
  const Clock::time_point deadline = Clock::now() + limits_.join + limits_.collective;
  std::unique_lock lock(mutex_);
  // The coordinator ends the waiting and says who is missing; the second limit is for when it cannot.
  bool told = false;
  while (!told && Clock::now() < deadline) {
    check_stop(stop);
    told = changed_.wait_for(lock, kRetry, [&] { return all_here_ || !cause_.empty(); });
  }
  if (all_here_) return;
  if (refused_)
    throw UsageError("rank 0 at {} refused this process: {}", peer_address(socket_, true), cause_);
  throw PeerError(told ? cause_ : fmt::format("rank 0 at {} does not answer", peer_address(socket_, true)));
}

std::string Membership::own_address() const { return comm::own_address(socket_, false); }

bool Membership::send(const Message& message) {
  const std::lock_guard lock(sending_);
  return send_all(socket_, encode(message), Clock::now() + kSendTime);
}

Message Membership::call_message(const char* kind) const { return {{kKind, kind}, {kCalls, calls_.load()}}; }

void Membership::set(const std::string& key, const std::vector<char>& value) {
  send({{kKind, kSet},
        {kKey, key},
        {kValue, Message::binary(std::vector<std::uint8_t>(value.begin(), value.end()))}});
}

std::vector<char> Membership::get(const std::string& key, milliseconds limit) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = values_.find(key); found != values_.end()) return found->second;
  }
  send({{kKind, kGet}, {kKey, key}});
  std::unique_lock lock(mutex_);
  if (!changed_.wait_for(lock, limit, [&] { return values_.contains(key) || !cause_.empty(); }))
    throw PeerError(fmt::format("a peer did not say within {:g} s where it listens", seconds(limit)));
  const auto found = values_.find(key);
  if (found == values_.end()) throw PeerError(cause_);
  return found->second;
}

std::string Membership::cause(milliseconds wait) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, wait, [&] { return !cause_.empty(); });
  return cause_;
}

void Membership::report_late() { send(call_message(kLate)); }

void Membership::leave(const std::string& why) noexcept {
  try {
    send({{kKind, kFailed}, {kWhy, why.substr(0, 4096)}});
  } catch (const std::exception&) {  // the closed connection then tells them less
  }
}

void Membership::on_stuck(Action action, milliseconds grace) {
  const std::lock_guard lock(mutex_);
  on_stuck_ = std::move(action);
  grace_ = grace;
}

void Membership::run() {
  listen();
  const Clock::time_point lost = Clock::now();
  for (; !stop_; std::this_thread::sleep_for(kTurn)) {
    std::unique_lock lock(mutex_);
    if (!on_stuck_ || Clock::now() - lost < grace_) continue;
    const Action action = std::exchange(on_stuck_, {});
    const std::string cause = cause_;
    lock.unlock();
    action(cause);
  }
}

void Membership::listen() {
  Clock::time_point heard = Clock::now(), beaten{}, before = heard;
  while (!stop_) {
    pollfd entry{socket_.fd(), POLLIN, 0};
    ::poll(&entry, 1, static_cast<int>(kTurn.count()));
    const Clock::time_point now = Clock::now();
    if (now - before > 20 * kTurn) heard = now;  // this process was stopped itself
    before = now;
    const MessageReader::State state = reader_.read_from(socket_);
    try {
      while (const auto message = reader_.next()) {
        heard = now;
        handle(*message);
      }
      if (!cause(milliseconds(0)).empty()) return;
    } catch (const Error& what) {
      lost(fmt::format("rank 0 at {} sent {}", peer_address(socket_, true), what.what()));
      return;
    }
    if (state == MessageReader::State::closed) {
      if (!stop_)
        lost(fmt::format("rank 0 ({} port {}) ended without a word: its connection was closed",
                         world_.master_host, world_.master_port));
      return;
    }
    if (now - beaten >= beat_interval(limits_)) {
      beaten = now;
      send(call_message(kBeatKind));
    }
    if (now - heard > silence_limit(limits_)) {
      lost(fmt::format(
          "rank 0 ({} port {}) gave no sign of life for {:g} s: it was stopped, or the network to it is cut",
          world_.master_host, world_.master_port, seconds(silence_limit(limits_))));
      return;
    }
  }
}

void Membership::handle(const Message& message) {
  const std::string kind = text_in(message, kKind);
  if (kind == kLost || kind == kRefused) {
    if (kind == kRefused) {
      const std::lock_guard lock(mutex_);
      refused_ = true;
    }
    lost(text_in(message, kWhy));
    return;
  }
  const std::lock_guard lock(mutex_);
  if (kind == kAll) {
    const auto all = message.find(kMembers);
    if (all == message.end() || !all->is_array() || all->size() != static_cast<std::size_t>(world_.size))
      throw DataError("a damaged list of members");
    for (const Message& one : *all)
      members_.push_back({text_in(one, kHost), number_in(one, kProcess, 0), text_in(one, kAddress)});
    all_here_ = true;
  } else if (kind == kValue) {
    const auto value = message.find(kValue);
    if (value == message.end() || !value->is_binary()) throw DataError("a key without a value");
    values_[text_in(message, kKey)].assign(value->get_binary().begin(), value->get_binary().end());
  }
  changed_.notify_all();
}

void Membership::lost(const std::string& cause) {
  const std::lock_guard lock(mutex_);
  if (cause_.empty()) cause_ = cause;
  changed_.notify_all();
}

}  // namespace redline::comm
