#include "comm/hub.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/sha256.h"
#include "comm/handshake.h"
#include "comm/protocol.h"

namespace redline::comm {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kWaitingTime{10'000};  // to say who one is
// Strangers are many in a flood; guests are ranks of one job or of two that take turns at a port.
constexpr std::size_t kMostStrangers = 2048, kMostGuests = 16384;
// Strangers are accepted faster than they come, because a full queue refuses everyone. But every turn reads
// all that can be read, so that no connection is dropped before it was read.
constexpr int kAcceptedAtOnce = 256, kAcceptedWhenComplete = 32;
constexpr std::size_t kMostEvents = 8192;
constexpr milliseconds kAcceptPause{100};  // when nobody is expected
constexpr std::uint64_t kRefusalsShown = 8;

void raise_file_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

bool watch(const Socket& poller, int operation, int fd, std::uint32_t events, void* whose) {
  epoll_event event{};
  event.events = events;
  event.data.ptr = whose;
  return ::epoll_ctl(poller.fd(), operation, fd, &event) == 0;
}

}  // namespace

Hub::Hub(Socket listener, std::string role, std::string token)
    : listener_(std::move(listener)),
      poller_(::epoll_create1(EPOLL_CLOEXEC)),
      role_(std::move(role)),
      token_(std::move(token)),
      events_(kMostEvents) {
  raise_file_limit();
  if (poller_.fd() < 0 || !watch(poller_, EPOLL_CTL_ADD, listener_.fd(), EPOLLIN, nullptr))
    throw UnavailableError("cannot watch more sockets: has the limit on open files been reached?");
}

Hub::~Hub() = default;

void Hub::turn(milliseconds wait, Handler& handler) {
  const int count = ::epoll_wait(poller_.fd(), events_.data(), static_cast<int>(events_.size()),
                                 static_cast<int>(wait.count()));
  bool knocked = false;
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events_[static_cast<std::size_t>(i)];
    auto* connection = static_cast<Connection*>(event.data.ptr);
    if (connection == nullptr) {
      knocked = true;
      continue;
    }
    if ((event.events & ~EPOLLOUT) != 0 && !connection->closed_) read(*connection, handler);
    if ((event.events & EPOLLOUT) != 0 && !connection->closed_) flush(*connection);
  }
  sweep();
  const Clock::time_point now = Clock::now();
  if (expecting_ ? knocked : now - accepted_ > kAcceptPause) {
    accepted_ = now;
    accept_some(expecting_ ? kAcceptedAtOnce : kAcceptedWhenComplete, handler);
  }
  drop_late(strangers_);
  drop_late(guests_);
  sweep();
}

void Hub::expect(bool more) {
  if (more == std::exchange(expecting_, more)) return;
  watch(poller_, EPOLL_CTL_MOD, listener_.fd(), more ? EPOLLIN : 0U, nullptr);
}

void Hub::drop_late(std::list<Connection>& waiting) {
  const Clock::time_point now = Clock::now();
  for (Connection& connection : waiting) {
    if (now - connection.since_ <= kWaitingTime) return;  // the others came later
    if (!connection.closed_) end(connection);
  }
}

void Hub::accept_some(int most, Handler& handler) {
  for (int i = 0; i < most; ++i) {
    Socket socket = accept_from(listener_);
    if (socket.fd() >= 0) {
      accept_one(std::move(socket), handler);
      continue;
    }
    if (errno != EMFILE && errno != ENFILE) return;
    if (strangers_.empty())
      std::this_thread::sleep_for(milliseconds(50));  // it stays readable
    else
      strangers_.pop_front();
    return;
  }
}

void Hub::accept_one(Socket socket, Handler& handler) {
  if (strangers_.size() >= kMostStrangers) strangers_.pop_front();
  Connection& stranger = strangers_.emplace_back();
  stranger.socket_ = std::move(socket);
  stranger.reader_.allow(kLongestKnock);
  // If it had to wait, its knock has already arrived.
  read(stranger, handler);
  if (stranger.closed_) {
    if (stranger.stage_ == Connection::Stage::stranger) strangers_.pop_back();
    return;
  }
  const std::uint32_t events = EPOLLIN | (stranger.writing_ ? EPOLLOUT : 0U);
  if (!watch(poller_, EPOLL_CTL_ADD, stranger.socket_.fd(), events, &stranger)) end(stranger);
}

void Hub::read(Connection& connection, Handler& handler) {
  const MessageReader::State state = connection.reader_.read_from(connection.socket_);
  std::string why;
  try {
    while (!connection.closed_) {
      const auto message = connection.reader_.next();
      if (!message) break;
      if (!connection.closing_) hear(connection, *message, handler);
    }
  } catch (const Error& what) {
    why = what.what();
  }
  if (connection.closed_ || (state == MessageReader::State::more && why.empty())) return;
  if (connection.stage_ == Connection::Stage::member && !connection.closing_)
    handler.closed(connection, why);
  else if (!why.empty() && ++refused_ <= kRefusalsShown)
    log_warning("closed a connection from {}: {}", connection.address(), why);
  if (!connection.closed_) end(connection);
}

void Hub::hear(Connection& connection, const Message& message, Handler& handler) {
  switch (connection.stage_) {
    case Connection::Stage::stranger:
      return answer_knock(connection, message);
    case Connection::Stage::guest:
      return answer_hello(connection, message, handler);
    case Connection::Stage::member:
      return handler.message(connection, message);
  }
}

void Hub::answer_knock(Connection& connection, const Message& knock) {
  if (text_in(knock, kKind) != kKnock) throw DataError("it did not say who it is");
  if (number_in(knock, kProtocol, 0) != kProtocolVersion)
    return refuse(connection, fmt::format("it speaks version {} of the protocol, and this end version {}",
                                          number_in(knock, kProtocol, 0), kProtocolVersion));
  connection.client_nonce_ = bytes_in(knock, kNonce);
  if (connection.client_nonce_.size() != kNonceBytes ||
      !same_secret(bytes_in(knock, kProof), knock_proof(token_, role_, connection.client_nonce_)))
    return refuse(connection, "its token is not this job's");
  if (guests_.size() >= kMostGuests) end(guests_.front());
  move(connection, Connection::Stage::guest, kLongestHello);
  connection.nonce_ = random_bytes(kNonceBytes);
  send(connection,
       Message{{kKind, kChallenge}, {kProtocol, kProtocolVersion}, {kNonce, binary(connection.nonce_)}});
}

void Hub::answer_hello(Connection& connection, const Message& hello, Handler& handler) {
  if (text_in(hello, kKind) != kHello) throw DataError("it did not say who it is");
  const std::string body = bytes_in(hello, kBody);
  if (!same_secret(bytes_in(hello, kProof),
                   client_proof(token_, role_, connection.nonce_, connection.client_nonce_, body)))
    return refuse(connection, "its token is not this job's");
  const Refusal refusal = handler.hello(connection, decode(body));
  if (!refusal.why.empty()) return refuse(connection, refusal.why, refusal.again);
  move(connection, Connection::Stage::member, kLongestMessage);
  const std::string proof = server_proof(token_, role_, connection.nonce_, connection.client_nonce_);
  send(connection, Message{{kKind, kWelcome}, {kProof, binary(proof)}});
  handler.welcomed(connection);
}

// One further on in its handshake.
void Hub::move(Connection& connection, Connection::Stage stage, std::size_t longest) {
  std::list<Connection>& from = connection.stage_ == Connection::Stage::stranger ? strangers_ : guests_;
  std::list<Connection>& to = stage == Connection::Stage::guest ? guests_ : members_;
  to.splice(to.end(), from,
            std::ranges::find_if(from, [&](const Connection& one) { return &one == &connection; }));
  connection.stage_ = stage;
  connection.since_ = Clock::now();
  connection.reader_.allow(longest);
}

void Hub::refuse(Connection& connection, const std::string& why, bool again) {
  if (++refused_ <= kRefusalsShown)
    log_warning("refused {}: {}{}", connection.address(), why,
                refused_ == kRefusalsShown ? "; further refusals are not logged" : "");
  send(connection, Message{{kKind, kRefused}, {kWhy, why}, {kAgain, again ? 1 : 0}});
  close(connection);
}

void Hub::send(Connection& connection, const Message& message) {
  send(connection, std::make_shared<const std::string>(encode(message)));
}

void Hub::send(Connection& connection, std::shared_ptr<const std::string> encoded) {
  if (connection.closed_) return;
  connection.unsent_.push_back(std::move(encoded));
  if (connection.unsent_.size() == 1) flush(connection);
}

void Hub::flush(Connection& connection) {
  while (!connection.unsent_.empty()) {
    const std::string& first = *connection.unsent_.front();
    connection.sent_ += send_some(connection.socket_, std::string_view(first).substr(connection.sent_));
    if (connection.sent_ < first.size()) break;
    connection.unsent_.pop_front();
    connection.sent_ = 0;
  }
  const bool writing = !connection.unsent_.empty();
  if (!writing && connection.closing_) return end(connection);
  if (writing == std::exchange(connection.writing_, writing)) return;
  // One that is not watched yet will be, for what it needs.
  watch(poller_, EPOLL_CTL_MOD, connection.socket_.fd(), EPOLLIN | (writing ? EPOLLOUT : 0U), &connection);
}

void Hub::close(Connection& connection) {
  connection.closing_ = true;
  if (connection.unsent_.empty() && !connection.closed_) end(connection);
}

void Hub::end(Connection& connection) {
  connection.closed_ = true;
  connection.socket_ = Socket();  // which ends watching it
  connection.unsent_.clear();
  ended_ = true;
}

void Hub::sweep() {
  if (!std::exchange(ended_, false)) return;
  const auto is_closed = [](const Connection& connection) { return connection.closed_; };
  strangers_.remove_if(is_closed);
  guests_.remove_if(is_closed);
  members_.remove_if(is_closed);
}

}  // namespace redline::comm
