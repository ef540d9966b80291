#include "comm/hub.h"

#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
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

constexpr milliseconds kStrangerTime{10'000};  // to say who one is
constexpr std::size_t kMostStrangers = 2048;   // of kLongestHello each
// Few at a time, so that those who came before are heard before they must make way.
constexpr int kAcceptedAtOnce = 64;
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
      token_(std::move(token)) {
  raise_file_limit();
  if (poller_.fd() < 0 || !watch(poller_, EPOLL_CTL_ADD, listener_.fd(), EPOLLIN, nullptr))
    throw UnavailableError("the system watches no more sockets: is the limit of open files reached?");
}

Hub::~Hub() = default;

void Hub::turn(milliseconds wait, Handler& handler) {
  std::array<epoll_event, 256> events;
  const int count = ::epoll_wait(poller_.fd(), events.data(), static_cast<int>(events.size()),
                                 static_cast<int>(wait.count()));
  bool knocked = false;
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events[static_cast<std::size_t>(i)];
    auto* connection = static_cast<Connection*>(event.data.ptr);
    if (connection == nullptr) {
      knocked = true;
      continue;
    }
    if ((event.events & ~EPOLLOUT) != 0 && !connection->closed_) read(*connection, handler);
    if ((event.events & EPOLLOUT) != 0 && !connection->closed_) flush(*connection);
  }
  if (knocked) accept_some();
  const Clock::time_point now = Clock::now();
  for (Connection& stranger : strangers_) {
    if (now - stranger.since_ <= kStrangerTime) break;  // the others came later
    if (!stranger.closed_) end(stranger);
  }
  sweep();
}

void Hub::accept_some() {
  sweep();
  for (int i = 0; i < kAcceptedAtOnce; ++i) {
    Socket socket = accept_from(listener_);
    if (socket.fd() < 0) {
      if (errno != EMFILE && errno != ENFILE) return;
      if (strangers_.empty())
        std::this_thread::sleep_for(milliseconds(50));  // it stays readable
      else
        strangers_.pop_front();
      return;
    }
    if (strangers_.size() >= kMostStrangers) strangers_.pop_front();
    Connection& stranger = strangers_.emplace_back();
    stranger.address_ = peer_address(socket, true);
    stranger.socket_ = std::move(socket);
    stranger.reader_.allow(kLongestHello);
    stranger.nonce_ = random_bytes(kNonceBytes);
    if (!watch(poller_, EPOLL_CTL_ADD, stranger.socket_.fd(), EPOLLIN, &stranger)) {
      strangers_.pop_back();
      continue;
    }
    send(stranger,
         Message{{kKind, kChallenge}, {kProtocol, kProtocolVersion}, {kNonce, binary(stranger.nonce_)}});
  }
}

void Hub::read(Connection& connection, Handler& handler) {
  const MessageReader::State state = connection.reader_.read_from(connection.socket_);
  std::string why;
  try {
    while (!connection.closed_) {
      const auto message = connection.reader_.next();
      if (!message) break;
      if (connection.closing_) continue;
      if (connection.member_)
        handler.message(connection, *message);
      else
        greet(connection, *message, handler);
    }
  } catch (const Error& what) {
    why = what.what();
  }
  if (connection.closed_ || (state == MessageReader::State::more && why.empty())) return;
  if (connection.member_ && !connection.closing_)
    handler.closed(connection, why);
  else if (!why.empty() && ++refused_ <= kRefusalsShown)
    log_warning("closed a connection from {}: {}", connection.address_, why);
  if (!connection.closed_) end(connection);
}

void Hub::greet(Connection& connection, const Message& hello, Handler& handler) {
  if (text_in(hello, kKind) != kHello) throw DataError("it did not say who it is");
  if (number_in(hello, kProtocol, 0) != kProtocolVersion)
    return refuse(connection, fmt::format("it speaks version {} of the protocol, and this end version {}",
                                          number_in(hello, kProtocol, 0), kProtocolVersion));
  const std::string nonce = bytes_in(hello, kNonce), body = bytes_in(hello, kBody);
  if (nonce.size() != kNonceBytes ||
      !same_secret(bytes_in(hello, kProof), client_proof(token_, role_, connection.nonce_, nonce, body)))
    return refuse(connection, "its token is not this job's");
  const Refusal refusal = handler.hello(connection, decode(body));
  if (!refusal.why.empty()) return refuse(connection, refusal.why, refusal.again);
  connection.member_ = true;
  connection.reader_.allow(kLongestMessage);
  const auto at =
      std::ranges::find_if(strangers_, [&](const Connection& one) { return &one == &connection; });
  members_.splice(members_.end(), strangers_, at);
  const std::string proof = server_proof(token_, role_, connection.nonce_, nonce);
  send(connection, Message{{kKind, kWelcome}, {kProof, binary(proof)}});
  handler.welcomed(connection);
}

void Hub::refuse(Connection& connection, const std::string& why, bool again) {
  if (++refused_ <= kRefusalsShown)
    log_warning("refused {}: {}{}", connection.address_, why,
                refused_ == kRefusalsShown ? "; others are refused without a word" : "");
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
  members_.remove_if(is_closed);
}

}  // namespace redline::comm
