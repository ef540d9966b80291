#include "comm/membership.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/machine.h"
#include "base/stacks.h"
#include "comm/coordinator.h"
#include "comm/protocol.h"

namespace redline::comm {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kSendTime{5'000};
constexpr std::size_t kLongestAccount = 256 << 10;

void check_stop(const std::atomic<bool>* stop) {
  if (stop != nullptr && stop->load()) throw PeerError("stopped while waiting for the other ranks");
}

// On every rank of a job that a restart would not help.
ExitCode lasting_code(std::int64_t code) {
  for (const ExitCode one : {ExitCode::usage, ExitCode::bad_data})
    if (code == static_cast<int>(one)) return one;
  return ExitCode::try_again;
}

std::vector<Member> members_in(const Message& message, int size) {
  const auto hosts = message.find(kHosts), members = message.find(kMembers);
  const auto is_list = [&](auto found) { return found != message.end() && found->is_array(); };
  std::vector<Member> all;
  if (is_list(hosts) && is_list(members)) {
    for (std::size_t i = 0; i + 1 < members->size(); i += 2) {
      const Message &which = (*members)[i], &process = (*members)[i + 1];
      if (!which.is_number_unsigned() || !process.is_number_integer()) break;
      const std::size_t at = which.get<std::size_t>();
      if (at >= hosts->size() / 2) break;
      const Message &host = (*hosts)[2 * at], &address = (*hosts)[2 * at + 1];
      if (!host.is_string() || !address.is_string()) break;
      all.push_back({host.get<std::string>(), process.get<std::int64_t>(), address.get<std::string>()});
    }
  }
  if (all.size() != static_cast<std::size_t>(size)) throw DataError("a damaged list of members");
  return all;
}

}  // namespace

Membership::Membership(const World& world, const Facts& facts, const TimeLimits& limits,
                       const std::atomic<bool>* stop, std::shared_ptr<Position> position)
    : world_(world),
      limits_(limits),
      link_{Socket(), MessageReader(kLongestMessage)},
      position_(std::move(position)) {
  prepare_stacks();
  Message named = Message::object();
  for (const auto& [name, value] : facts) named[name] = value;
  // The coordinator ends the waiting and names the missing ranks; this limit is for when it cannot.
  const Clock::time_point deadline = Clock::now() + limits.join + 2 * beat_interval(limits);
  link_ = introduce({.host = world.master_host,
                     .port = world.master_port,
                     .who = fmt::format("rank {}", world.rank),
                     .whom = "rank 0",
                     .role = "rank",
                     .token = world.token,
                     .body = {{kRun, world.run_id},
                              {kRank, world.rank},
                              {kSize, world.size},
                              {kFacts, std::move(named)},
                              {kHost, inspect_machine().hostname},
                              {kProcess, static_cast<std::int64_t>(::getpid())}},
                     .deadline = deadline,
                     .limit_s = seconds(limits.join),
                     .poll = [stop] { check_stop(stop); }});
  thread_ = std::thread([this] { run(); });
  try {
    join(deadline, stop);
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

void Membership::join(Clock::time_point deadline, const std::atomic<bool>* stop) {
  std::unique_lock lock(mutex_);
  bool told = false;
  while (!told && Clock::now() < deadline) {
    check_stop(stop);
    told = changed_.wait_for(lock, kRetry, [&] { return all_here_ || !cause_.empty(); });
  }
  if (all_here_) return;
  if (told) throw PeerError(cause_, code_);
  throw PeerError(fmt::format("rank 0 at {} does not answer", peer_address(link_.socket, true)));
}

std::string Membership::own_address() const { return comm::own_address(link_.socket, false); }

bool Membership::send(const Message& message) {
  const std::lock_guard lock(sending_);
  return send_all(link_.socket, encode(message), Clock::now() + kSendTime);
}

Message Membership::call_message(const char* kind) const {
  return {{kKind, kind}, {kCalls, position_->calls()}};
}

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
  if (!changed_.wait_for(lock, limit, [&] { return values_.contains(key) || !cause_.empty(); })) {
    lock.unlock();
    report_late();
    cause(kVerdictTime);
    lock.lock();
    if (cause_.empty() && !values_.contains(key))
      throw PeerError(
          fmt::format("a peer did not say within {:g} s where it listens", seconds(limits_.collective)));
  }
  const auto found = values_.find(key);
  if (found == values_.end()) throw PeerError(cause_, code_);
  return found->second;
}

std::string Membership::cause(milliseconds wait) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, wait, [&] { return !cause_.empty(); });
  return cause_;
}

PeerError Membership::error() const {
  const std::lock_guard lock(mutex_);
  return PeerError(cause_, code_);
}

void Membership::report_late() { send(call_message(kLate)); }

void Membership::leave(const std::string& why, ExitCode code) noexcept {
  try {
    send({{kKind, kFailed}, {kWhy, why.substr(0, 4096)}, {kCode, static_cast<int>(code)}});
  } catch (const std::exception&) {  // the closed connection then tells them less
  }
}

void Membership::on_stuck(Action action, milliseconds grace) {
  const std::lock_guard lock(mutex_);
  on_stuck_ = std::move(action);
  grace_ = grace;
}

void Membership::allow(milliseconds grace) {
  const std::lock_guard lock(mutex_);
  grace_ = std::max(grace_, grace);
}

void Membership::run() {
  listen();
  const Clock::time_point lost = Clock::now();
  for (; !stop_; std::this_thread::sleep_for(kPoll)) {
    std::unique_lock lock(mutex_);
    if (!on_stuck_ || Clock::now() - lost < grace_) continue;
    const Action action = std::exchange(on_stuck_, {});
    const std::string cause = cause_;
    lock.unlock();
    explain(/*rank_0_answers=*/true);
    action(cause);
  }
}

void Membership::listen() {
  Clock::time_point heard = Clock::now(), beaten{}, before = heard;
  while (!stop_) {
    pollfd entry{link_.socket.fd(), POLLIN, 0};
    ::poll(&entry, 1, static_cast<int>(kPoll.count()));
    const Clock::time_point now = Clock::now();
    if (now - before > 20 * kPoll) heard = now;  // this process was stopped itself
    before = now;
    const MessageReader::State state = link_.reader.read_from(link_.socket);
    try {
      while (const auto message = link_.reader.next()) {
        heard = now;
        handle(*message);
      }
      if (!cause(milliseconds(0)).empty()) return;
    } catch (const Error& what) {
      lost(fmt::format("rank 0 at {} sent {}", peer_address(link_.socket, true), what.what()));
      return;
    }
    if (state == MessageReader::State::closed) {
      if (!stop_)
        lost(fmt::format("rank 0 ({} port {}) ended without a message: its connection was closed",
                         world_.master_host, world_.master_port));
      return;
    }
    if (now - beaten >= beat_interval(limits_)) {
      beaten = now;
      send(call_message(kBeatKind));
    }
    if (now - heard > silence_limit(limits_)) {
      explain(/*rank_0_answers=*/false);
      lost(fmt::format(
          "rank 0 ({} port {}) gave no sign of life for {:g} s: it was stopped, or the network to it is cut",
          world_.master_host, world_.master_port, seconds(silence_limit(limits_))));
      return;
    }
  }
}

void Membership::handle(const Message& message) {
  const std::string kind = text_in(message, kKind);
  if (kind == kLost) {
    if (number_in(message, kHang, 0) != 0)
      explain(/*rank_0_answers=*/true);  // before what waits hears of it and goes on
    lost(text_in(message, kWhy), lasting_code(number_in(message, kCode, 0)));
    return;
  }
  const std::lock_guard lock(mutex_);
  if (kind == kAll) {
    members_ = members_in(message, world_.size);
    all_here_ = true;
  } else if (kind == kValue) {
    const auto value = message.find(kValue);
    if (value == message.end() || !value->is_binary()) throw DataError("a key without a value");
    values_[text_in(message, kKey)].assign(value->get_binary().begin(), value->get_binary().end());
  }
  changed_.notify_all();
}

void Membership::explain(bool rank_0_answers) {
  if (std::exchange(explained_, true)) return;
  const std::string at = position_->text();
  std::string stacks = thread_stacks();
  if (stacks.size() > kLongestAccount) stacks.resize(kLongestAccount);
  const std::string account =
      fmt::format("{} rank {} of {} ({}, process {}) is {}\n{}\n", utc_timestamp(), world_.rank, world_.size,
                  inspect_machine().hostname, ::getpid(), at, stacks);
  const std::filesystem::path folder = position_->folder();
  log_warning("rank {} of {} is {}{}", world_.rank, world_.size, at,
              folder.empty() ? "" : fmt::format("; all ranks' stacks: {}", folder.string()));
  // Rank 0 collects them. If it does not answer, this rank writes its own, if it can access the folder.
  if (rank_0_answers && link_.reader.read_from(link_.socket) != MessageReader::State::closed &&
      send({{kKind, kAccount}, {kWhy, account}}))
    return;
  try {
    if (!folder.empty() && std::filesystem::exists(folder.parent_path()))
      return keep_account(folder, fmt::format("rank-{}.txt", world_.rank), account);
  } catch (const Error& failure) {
    log_warning("{}", failure.what());
  }
  print_stderr("{}", account);
}

void Membership::lost(const std::string& cause, ExitCode code) {
  const std::lock_guard lock(mutex_);
  if (cause_.empty()) {
    cause_ = cause;
    code_ = code;
  }
  changed_.notify_all();
}

}  // namespace redline::comm
