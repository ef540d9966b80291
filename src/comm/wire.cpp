#include "comm/wire.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/error.h"

namespace redline::comm {
namespace {

constexpr std::size_t kLengthBytes = 4;

struct FreeAddresses {
  void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

Addresses resolve(const std::string& host, std::uint16_t port, int flags, std::string& why) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int error =
      ::getaddrinfo(host.empty() ? nullptr : host.c_str(), std::to_string(port).c_str(), &hints, &list);
  if (error != 0) why = ::gai_strerror(error);
  return Addresses(error == 0 ? list : nullptr);
}

std::string text_of(const sockaddr_storage& address, bool with_port) {
  char text[INET6_ADDRSTRLEN] = "?";
  if (address.ss_family == AF_INET) {
    const auto& in = reinterpret_cast<const sockaddr_in&>(address);
    ::inet_ntop(AF_INET, &in.sin_addr, text, sizeof text);
    return with_port ? fmt::format("{}:{}", text, ntohs(in.sin_port)) : text;
  }
  if (address.ss_family == AF_INET6) {
    const auto& in = reinterpret_cast<const sockaddr_in6&>(address);
    // IPv4 through a socket for both is shown as the IPv4 that it is.
    const bool mapped = IN6_IS_ADDR_V4MAPPED(&in.sin6_addr) != 0;
    ::inet_ntop(mapped ? AF_INET : AF_INET6, in.sin6_addr.s6_addr + (mapped ? 12 : 0), text, sizeof text);
    if (!with_port) return text;
    return fmt::format("{}{}{}:{}", mapped ? "" : "[", text, mapped ? "" : "]", ntohs(in.sin6_port));
  }
  return text;
}

bool is_loopback(const sockaddr* address) {
  if (address->sa_family == AF_INET)
    return (ntohl(reinterpret_cast<const sockaddr_in*>(address)->sin_addr.s_addr) >> 24) == 127;
  return address->sa_family == AF_INET6 &&
         IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr) != 0;
}

// Of no use without an interface: loopback, or IPv6 within a link.
bool is_local(const sockaddr* address) {
  return is_loopback(address) ||
         (address->sa_family == AF_INET6 &&
          IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr) != 0);
}

using Interfaces = std::unique_ptr<ifaddrs, void (*)(ifaddrs*)>;
Interfaces list_interfaces() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) list = nullptr;
  return {list, ::freeifaddrs};
}

void make_non_blocking(int fd) { ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK); }

void send_at_once(int fd) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

std::string reason(int error) { return std::generic_category().message(error); }

// Waits for the socket; false when the deadline passes first.
bool wait_for(int fd, short events, Clock::time_point deadline, const std::function<void()>& poll = {}) {
  constexpr std::int64_t kBetweenPolls = 200;  // milliseconds
  for (;;) {
    if (poll) poll();
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return false;
    pollfd entry{fd, events, 0};
    const int ready = ::poll(&entry, 1, static_cast<int>(std::min(left, poll ? kBetweenPolls : 1 << 30)));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
  }
}

// An IPv6 socket serves IPv4 too, if it listens on every address.
Socket listen_on(const addrinfo& address, int& error) {
  Socket socket(::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1, off = 0;
  if (address.ai_family == AF_INET6) ::setsockopt(socket.fd(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  if (socket.fd() < 0 || ::setsockopt(socket.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      ::bind(socket.fd(), address.ai_addr, address.ai_addrlen) != 0 ||
      ::listen(socket.fd(), SOMAXCONN) != 0) {
    error = errno;
    return {};
  }
  make_non_blocking(socket.fd());
  send_at_once(socket.fd());  // what is accepted inherits it
  return socket;
}

// On every address: over IPv6 and IPv4 if the machine has IPv6, otherwise over IPv4.
Socket listen_on_all(std::uint16_t port, int& error) {
  for (const char* any : {"::", "0.0.0.0"}) {
    std::string ignored;
    const Addresses address = resolve(any, port, AI_NUMERICHOST, ignored);
    if (address == nullptr) continue;
    if (Socket socket = listen_on(*address, error); socket.fd() >= 0) return socket;
    if (error == EADDRINUSE) break;
  }
  return {};
}

// Accepts messages that are safe to build. The parser recurses into nested values, so that many levels
// overrun the stack, and throws at a count that does not fit into memory.
class Screen final : public nlohmann::json_sax<Message> {
 public:
  explicit Screen(std::size_t bytes) : bytes_(bytes) {}
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(std::int64_t) override { return true; }
  bool number_unsigned(std::uint64_t) override { return true; }
  bool number_float(double, const std::string&) override { return true; }
  bool string(std::string&) override { return true; }
  bool binary(Message::binary_t&) override { return true; }
  bool key(std::string&) override { return true; }
  bool start_object(std::size_t count) override { return enter(count); }
  bool start_array(std::size_t count) override { return enter(count); }
  bool end_object() override { return leave(); }
  bool end_array() override { return leave(); }
  bool parse_error(std::size_t, const std::string&, const nlohmann::json::exception&) override {
    return false;
  }

 private:
  static constexpr int kDeepest = 8;  // a list of members has three
  bool enter(std::size_t count) {
    constexpr auto kUnknown = static_cast<std::size_t>(-1);  // an end mark closes it
    return ++depth_ <= kDeepest && (count == kUnknown || count <= bytes_);
  }
  bool leave() {
    --depth_;
    return true;
  }

  std::size_t bytes_;
  int depth_ = 0;
};

}  // namespace

Socket::~Socket() {
  if (fd_ >= 0) ::close(fd_);
}

std::string own_address(const Socket& socket, bool port) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  ::getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&address), &length);
  return text_of(address, port);
}

std::string peer_address(const Socket& socket, bool port) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  ::getpeername(socket.fd(), reinterpret_cast<sockaddr*>(&address), &length);
  return text_of(address, port);
}

std::string listening_address(const Socket& listener, const std::string& host) {
  const std::string address = own_address(listener, true);
  for (const std::string_view all : {"[::]:", "0.0.0.0:"})
    if (address.starts_with(all)) return fmt::format("{}:{}", host, address.substr(all.size()));
  return address;
}

std::string reachable_address(const std::string& address, bool ipv4) {
  const int family = ipv4 ? AF_INET : AF_INET6;
  std::string why;
  const Addresses own = resolve(address, 0, AI_NUMERICHOST, why);
  if (own == nullptr || (own->ai_family == family && !is_loopback(own->ai_addr))) return address;
  const Interfaces list = list_interfaces();
  for (const ifaddrs* entry = list.get(); entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != family || is_local(entry->ifa_addr))
      continue;
    sockaddr_storage found{};
    std::memcpy(&found, entry->ifa_addr, ipv4 ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
    return text_of(found, false);
  }
  return address;
}

std::vector<std::string> interface_names() {
  std::vector<std::string> names;
  const Interfaces list = list_interfaces();
  for (const ifaddrs* entry = list.get(); entry != nullptr; entry = entry->ifa_next) {
    const bool ip = entry->ifa_addr != nullptr &&
                    (entry->ifa_addr->sa_family == AF_INET || entry->ifa_addr->sa_family == AF_INET6);
    if (ip && std::ranges::find(names, entry->ifa_name) == names.end()) names.emplace_back(entry->ifa_name);
  }
  return names;
}

Socket listen_at(const std::string& host, std::uint16_t port, bool others) {
  std::string why;
  const Addresses named = resolve(host, port, 0, why);
  // A name that others can resolve may not resolve here yet, such as that of a service whose pod just
  // started.
  if (named == nullptr && !others)
    throw UnavailableError("cannot resolve {}, the host of rank 0: {}", host, why);
  int error = EADDRNOTAVAIL;
  std::vector<Socket> own;
  for (const addrinfo* address = named.get(); address != nullptr; address = address->ai_next) {
    if (others && is_loopback(address->ai_addr)) continue;
    if (Socket socket = listen_on(*address, error); socket.fd() >= 0) own.push_back(std::move(socket));
    if (!own.empty() && !others) break;
  }
  if (own.size() == 1) return std::move(own.front());
  // The name has several addresses of this machine, of which others may reach only one; or it is the name of
  // a gateway in front of it; or it resolves to 127.0.1.1, as Debian's own host name does.
  if (!own.empty() || error == EADDRNOTAVAIL) {
    own.clear();
    if (Socket socket = listen_on_all(port, error); socket.fd() >= 0) return socket;
  }
  throw UnavailableError("cannot listen at {} port {}: {}{}", host, port, reason(error),
                         error == EADDRINUSE
                             ? "; another job may use it: choose another port with --master or "
                               "MASTER_PORT"
                             : "");
}

Socket accept_from(const Socket& listener) {
  return Socket(::accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
}

Socket connect_to(const std::string& host, std::uint16_t port, Clock::time_point deadline, std::string& why,
                  const std::function<void()>& poll) {
  const Addresses named = resolve(host, port, 0, why);
  int left = 0;
  for (const addrinfo* address = named.get(); address != nullptr; address = address->ai_next) ++left;
  for (const addrinfo* address = named.get(); address != nullptr; address = address->ai_next, --left) {
    Socket socket(::socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (socket.fd() < 0) continue;
    int error = 0;
    // One that does not answer leaves time for those after it.
    const Clock::time_point now = Clock::now(), turn = now + (deadline - now) / left;
    if (::connect(socket.fd(), address->ai_addr, address->ai_addrlen) != 0) {
      error = errno;
      if (error == EINPROGRESS) {
        socklen_t length = sizeof error;
        if (!wait_for(socket.fd(), POLLOUT, turn, poll))
          error = ETIMEDOUT;
        else
          ::getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &length);
      }
    }
    if (error == 0) {
      send_at_once(socket.fd());
      return socket;
    }
    why = reason(error);
  }
  return {};
}

std::string encode(const Message& message) {
  const std::string body = encode_body(message);
  std::string bytes(kLengthBytes, '\0');
  for (std::size_t i = 0; i < kLengthBytes; ++i) bytes[i] = static_cast<char>(body.size() >> (8 * i) & 0xff);
  return bytes + body;
}

std::string encode_body(const Message& message) {
  std::string body;
  Message::to_cbor(message, body);
  return body;
}

Message binary(std::string_view bytes) {
  return Message::binary(std::vector<std::uint8_t>(bytes.begin(), bytes.end()));
}

Message decode(std::string_view body) {
  Screen screen(body.size());
  Message message;
  if (Message::sax_parse(body.begin(), body.end(), &screen, Message::input_format_t::cbor))
    message = Message::from_cbor(body.begin(), body.end(), /*strict=*/true, /*allow_exceptions=*/false);
  if (!message.is_object()) throw DataError("a message of {} bytes that is not redline's", body.size());
  return message;
}

bool send_all(const Socket& socket, const std::string& bytes, Clock::time_point deadline) {
  for (std::size_t sent = 0; sent < bytes.size();) {
    const ssize_t count =
        ::send(socket.fd(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count > 0) {
      sent += static_cast<std::size_t>(count);
    } else if (count < 0 && errno != EAGAIN && errno != EINTR) {
      return false;
    } else if (!wait_for(socket.fd(), POLLOUT, deadline)) {
      return false;
    }
  }
  return true;
}

std::size_t send_some(const Socket& socket, std::string_view bytes) {
  const ssize_t count = ::send(socket.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  return count > 0 ? static_cast<std::size_t>(count) : 0;
}

MessageReader::State MessageReader::read_from(const Socket& socket) {
  char chunk[16384];
  for (;;) {
    const ssize_t count = ::recv(socket.fd(), chunk, sizeof chunk, MSG_DONTWAIT);
    if (count == 0) return State::closed;
    if (count < 0) return errno == EAGAIN || errno == EINTR ? State::more : State::closed;
    bytes_.append(chunk, static_cast<std::size_t>(count));
    if (bytes_.size() > longest_ + kLengthBytes) return State::more;  // next() has something to say first
  }
}

std::optional<Message> MessageReader::next() {
  if (bytes_.size() < kLengthBytes) return {};
  std::size_t length = 0;
  for (std::size_t i = 0; i < kLengthBytes; ++i)
    length |= static_cast<std::size_t>(static_cast<unsigned char>(bytes_[i])) << (8 * i);
  if (length > longest_) throw DataError("a message of {} bytes", length);
  if (bytes_.size() < kLengthBytes + length) return {};
  Message message = decode(std::string_view(bytes_).substr(kLengthBytes, length));
  bytes_.erase(0, kLengthBytes + length);
  return message;
}

std::string text_in(const Message& message, const char* key) {
  const auto found = message.find(key);
  return found != message.end() && found->is_string() ? found->get<std::string>() : std::string();
}

std::string bytes_in(const Message& message, const char* key) {
  const auto found = message.find(key);
  if (found == message.end() || !found->is_binary()) return {};
  return {found->get_binary().begin(), found->get_binary().end()};
}

std::int64_t number_in(const Message& message, const char* key, std::int64_t otherwise) {
  const auto found = message.find(key);
  return found != message.end() && found->is_number_integer() ? found->get<std::int64_t>() : otherwise;
}

}  // namespace redline::comm
