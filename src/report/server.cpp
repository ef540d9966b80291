#include "report/server.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <list>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"

namespace redline::report {
namespace {

constexpr int kPollMilliseconds = 200;

const char* reason_of(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 431:
      return "Request Header Fields Too Large";
    case 503:
      return "Service Unavailable";
    default:
      return "Internal Server Error";
  }
}

std::string message_of(const Response& response, bool with_body) {
  std::string text = fmt::format(
      "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\nCache-Control: "
      "no-store\r\n"
      "X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\nX-Frame-Options: DENY\r\n"
      "Cross-Origin-Resource-Policy: same-origin\r\n{}\r\n",
      response.status, reason_of(response.status), response.type, response.body.size(),
      response.status == 405 ? "Allow: GET, HEAD\r\n" : "");
  if (with_body) text += response.body;
  return text;
}

Response refusal(int status) {
  Response response;
  response.status = status;
  response.body = fmt::format("{} {}\n", status, reason_of(status));
  return response;
}

// The value of a header; empty if there is none.
std::string header_value(std::string_view head, std::string_view name) {
  for (std::size_t at = head.find("\r\n"); at != std::string_view::npos; at = head.find("\r\n", at + 2)) {
    std::string_view line = head.substr(at + 2, head.find("\r\n", at + 2) - at - 2);
    if (line.size() <= name.size() || line[name.size()] != ':') continue;
    const bool same = std::equal(name.begin(), name.end(), line.begin(), [](char a, char b) {
      return std::tolower(a) == std::tolower(static_cast<unsigned char>(b));
    });
    if (!same) continue;
    line.remove_prefix(name.size() + 1);
    while (line.starts_with(' ')) line.remove_prefix(1);
    while (line.ends_with(' ')) line.remove_suffix(1);
    return std::string(line);
  }
  return {};
}

bool is_loopback_name(std::string host) {
  if (const std::size_t port = host.rfind(':');
      port != std::string::npos && host.find(']', port) == std::string::npos)
    host.resize(port);
  return host == "localhost" || host == "[::1]" || host == "127.0.0.1" || host.ends_with(".localhost");
}

}  // namespace

struct Server::Connection {
  int socket = -1;
  std::string in, out;
  std::size_t sent = 0;
  bool answering = false;
  Stopwatch watch;

  explicit Connection(int descriptor) : socket(descriptor) {}
  ~Connection() { close(socket); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  void respond(const Response& response, bool with_body = true) {
    out = message_of(response, with_body);
    answering = true;
    watch.restart();
  }
};

// The connections of one serve().
struct Server::Loop {
  const Server& server;
  const std::function<Response(const std::string&)>& answer;
  std::list<Connection> connections;

  void answer_head(Connection& connection, std::string_view head) const {
    const std::string_view line = head.substr(0, head.find("\r\n"));
    const std::size_t first = line.find(' '), last = line.rfind(' ');
    const bool http =
        first != std::string_view::npos && last > first && line.substr(last + 1).starts_with("HTTP/1.");
    if (!http) return connection.respond(refusal(400));
    const std::string_view method = line.substr(0, first);
    if (method != "GET" && method != "HEAD") return connection.respond(refusal(405));
    if (server.loopback_ && !is_loopback_name(header_value(head, "host")))
      return connection.respond(refusal(403));
    std::string path(line.substr(first + 1, last - first - 1));
    path.resize(std::min(path.size(), path.find('?')));
    try {
      connection.respond(answer(path), method == "GET");
    } catch (const std::exception& error) {
      log_warning("{}", error.what());
      connection.respond(refusal(500));
    }
  }

  // False when the connection is over.
  bool receive(Connection& connection) const {
    char buffer[4096];
    const ssize_t count = recv(connection.socket, buffer, sizeof buffer, 0);
    if (count < 0) return errno == EAGAIN || errno == EINTR;
    if (count == 0) return false;
    if (connection.answering) return true;  // ignore what follows the request
    connection.in.append(buffer, static_cast<std::size_t>(count));
    const std::size_t end = connection.in.find("\r\n\r\n");
    if (end == std::string::npos ? connection.in.size() > server.limits_.request_bytes
                                 : end > server.limits_.request_bytes) {
      connection.respond(refusal(431));
    } else if (end != std::string::npos) {
      answer_head(connection, std::string_view(connection.in).substr(0, end + 2));
    }
    return true;
  }

  bool send_more(Connection& connection) const {
    const ssize_t count = send(connection.socket, connection.out.data() + connection.sent,
                               connection.out.size() - connection.sent, MSG_NOSIGNAL);
    if (count < 0) return errno == EAGAIN || errno == EINTR;
    connection.sent += static_cast<std::size_t>(count);
    if (connection.sent < connection.out.size()) return true;
    // Unread bytes would make the kernel reset the connection and drop a response still on its way.
    shutdown(connection.socket, SHUT_WR);
    char rest[4096];
    for (int i = 0; i < 64 && recv(connection.socket, rest, sizeof rest, 0) > 0; ++i) {
    }
    return false;
  }

  bool keep(Connection& connection) const {
    const double seconds = connection.watch.seconds();
    if (connection.answering) return seconds < server.limits_.response_seconds;
    if (seconds >= server.limits_.request_seconds) connection.respond(refusal(408));
    return true;
  }

  void accept_all() {
    for (;;) {
      const int socket = accept4(server.listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
      if (socket < 0) return;
      Connection& connection = connections.emplace_back(socket);
      if (connections.size() > server.limits_.connections) connection.respond(refusal(503));
    }
  }

  void turn() {
    std::vector<pollfd> waits = {{server.listener_, POLLIN, 0}};
    for (const Connection& connection : connections)
      waits.push_back({connection.socket, static_cast<short>(connection.answering ? POLLOUT : POLLIN), 0});
    if (poll(waits.data(), waits.size(), kPollMilliseconds) < 0) return;  // a signal
    std::size_t at = 1;
    for (auto connection = connections.begin(); connection != connections.end(); ++at) {
      const short ready = waits[at].revents;
      bool open = (ready & (POLLERR | POLLNVAL)) == 0;
      if (open && (ready & (POLLIN | POLLHUP)) != 0) open = receive(*connection);
      if (open && (ready & POLLOUT) != 0) open = send_more(*connection);
      open = open && keep(*connection);
      connection = open ? std::next(connection) : connections.erase(connection);
    }
    // Beyond twice the limit, accept nothing until others finish.
    if ((waits[0].revents & POLLIN) != 0 && connections.size() < 2 * server.limits_.connections) accept_all();
  }
};

Server::Server(const std::string& address, std::uint16_t port, ServerLimits limits)
    : limits_(limits), address_(address) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE;
  hints.ai_socktype = SOCK_STREAM;
  if (getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found) != 0)
    throw UsageError("'{}' is not a numeric address such as 127.0.0.1", address);
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, freeaddrinfo);
  if (found->ai_family == AF_INET) {
    const auto* ip = reinterpret_cast<const sockaddr_in*>(found->ai_addr);
    loopback_ = (ntohl(ip->sin_addr.s_addr) >> 24) == 127;
  } else {
    const auto* ip = reinterpret_cast<const sockaddr_in6*>(found->ai_addr);
    loopback_ = IN6_IS_ADDR_LOOPBACK(&ip->sin6_addr);
  }
  listener_ = socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  const int on = 1;
  const bool listens = listener_ >= 0 &&
                       setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
                       bind(listener_, found->ai_addr, found->ai_addrlen) == 0 && listen(listener_, 128) == 0;
  if (!listens) {
    const std::string reason = std::strerror(errno);
    if (listener_ >= 0) close(listener_);
    throw UnavailableError("cannot listen on {} port {}: {}; choose another --port", address, port, reason);
  }
  sockaddr_storage bound{};
  socklen_t length = sizeof bound;
  getsockname(listener_, reinterpret_cast<sockaddr*>(&bound), &length);
  port_ = ntohs(bound.ss_family == AF_INET ? reinterpret_cast<sockaddr_in*>(&bound)->sin_port
                                           : reinterpret_cast<sockaddr_in6*>(&bound)->sin6_port);
}

Server::~Server() { close(listener_); }

std::string Server::url() const {
  return address_.find(':') == std::string::npos ? fmt::format("http://{}:{}/", address_, port_)
                                                 : fmt::format("http://[{}]:{}/", address_, port_);
}

void Server::serve(const std::function<Response(const std::string&)>& answer, const std::atomic<bool>& stop) {
  Loop loop{*this, answer, {}};
  while (!stop.load(std::memory_order_relaxed)) loop.turn();
}

}  // namespace redline::report
