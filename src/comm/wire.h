// The lowest layer of the control connections: sockets, readable addresses, and whole messages. A message is
// a length (u32, little-endian) and a CBOR object of that many bytes. Data from a peer is untrusted until
// checked.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

namespace redline::comm {

using Clock = std::chrono::steady_clock;
using Message = nlohmann::json;

// Owns a file descriptor. Move-only.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Socket();
  int fd() const { return fd_; }

 private:
  int fd_ = -1;
};

// "10.0.0.1:29500", "[::1]:29500", of this end and of the other; the address alone without `port`.
std::string own_address(const Socket& socket, bool port);
std::string peer_address(const Socket& socket, bool port);

// Where peers that look for `host` find a listener: its address, or the name if it listens on all addresses.
std::string listening_address(const Socket& listener, const std::string& host);

// An address of this machine that others can reach over IPv4, or else over IPv6: `address` if it is one,
// otherwise that of an interface, if there is one.
std::string reachable_address(const std::string& address, bool ipv4);

// The network interfaces of this machine that have an address: "lo", "eth0".
std::vector<std::string> interface_names();

// Listens only on `host`'s address, IPv4 or IPv6. Listens on every address if the name is not an address of
// this machine, or if `others` (peers on other machines) are expected and the name has several addresses,
// only a loopback one, or does not resolve yet. Throws UnavailableError.
Socket listen_at(const std::string& host, std::uint16_t port, bool others);
// The next connection, made non-blocking; an empty socket when there is none.
Socket accept_from(const Socket& listener);

// Tries each address of the name once; an empty socket and `why` when all fail. `poll` is called a few times
// a second while it waits, and may throw.
Socket connect_to(const std::string& host, std::uint16_t port, Clock::time_point deadline, std::string& why,
                  const std::function<void()>& poll = {});

std::string encode(const Message& message);
std::string encode_body(const Message& message);  // without the length
Message binary(std::string_view bytes);           // as a member of a message
// What follows the length, back into a message. Throws DataError for anything but a CBOR object of few
// levels.
Message decode(std::string_view body);
// Sends all of it; false when the other end is gone or the deadline passes.
bool send_all(const Socket& socket, const std::string& bytes, Clock::time_point deadline);

// Sends as much as possible without waiting; returns the number of bytes sent.
std::size_t send_some(const Socket& socket, std::string_view bytes);

// Assembles messages from the bytes that arrive.
class MessageReader {
 public:
  explicit MessageReader(std::size_t longest) : longest_(longest) {}
  void allow(std::size_t longest) { longest_ = longest; }

  enum class State { more, closed };
  // Reads what has arrived, without waiting and no more than a message needs; then call next() until it
  // returns nothing. closed: the other end has closed the connection.
  State read_from(const Socket& socket);
  // The next complete message; none if it has not arrived yet. Throws DataError for bytes that are not a
  // message.
  std::optional<Message> next();

 private:
  std::size_t longest_;
  std::string bytes_;
};

// A member of a message, or its default when it is missing or of another type.
std::string text_in(const Message& message, const char* key);
std::string bytes_in(const Message& message, const char* key);
std::int64_t number_in(const Message& message, const char* key, std::int64_t otherwise);

}  // namespace redline::comm
