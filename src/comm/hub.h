// The server's end of many control connections, for one thread. Whoever connects is a stranger until its
// handshake is done (handshake.h). Strangers can be many and mean harm: those that take too long are dropped,
// and when there is no room the one that has waited longest makes way, as it is the least likely to finish.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <string>
#include <string_view>

#include "comm/wire.h"

namespace redline::comm {

class Hub {
 public:
  class Connection {
   public:
    int id = -1;  // whose it is; set by Handler::hello
    const std::string& address() const { return address_; }
    bool all_sent() const { return unsent_.empty(); }

   private:
    friend class Hub;
    Socket socket_;
    std::string address_, nonce_;
    MessageReader reader_{0};
    std::deque<std::shared_ptr<const std::string>> unsent_;
    std::size_t sent_ = 0;  // bytes of the first of them
    Clock::time_point since_ = Clock::now();
    bool member_ = false, closing_ = false, writing_ = false, closed_ = false;
  };

  // Why somebody is kept out; empty: it is let in.
  struct Refusal {
    std::string why;
    bool again = false;  // it may be let in later
  };

  // What is done about a member; called from turn(). Its own call may close any connection.
  class Handler {
   public:
    virtual ~Handler() = default;
    // Somebody who knows the token. Once let in, send() goes to it.
    virtual Refusal hello(Connection& connection, const Message& body) = 0;
    virtual void welcomed(Connection& connection) = 0;  // it was told so: what it is sent comes after that
    virtual void message(Connection& connection, const Message& message) = 0;  // may throw DataError
    // The other end of a member's connection is gone, or (`why`) sent what it must not. The connection is
    // gone after this call.
    virtual void closed(Connection& connection, const std::string& why) = 0;
  };

  // Raises this process's limit of open files as far as it may. Throws UnavailableError.
  Hub(Socket listener, std::string role, std::string token);
  ~Hub();
  Hub(const Hub&) = delete;
  Hub& operator=(const Hub&) = delete;

  std::string address() const { return own_address(listener_, true); }
  void turn(std::chrono::milliseconds wait, Handler& handler);

  void send(Connection& connection, const Message& message);
  void send(Connection& connection, std::shared_ptr<const std::string> encoded);  // one text to many
  void close(Connection& connection);  // once all is sent; the handler is not told

 private:
  void accept_some();
  void read(Connection& connection, Handler& handler);
  void greet(Connection& connection, const Message& hello, Handler& handler);
  void refuse(Connection& connection, const std::string& why, bool again = false);
  void flush(Connection& connection);
  void end(Connection& connection);
  void sweep();

  const Socket listener_, poller_;
  const std::string role_, token_;
  std::list<Connection> strangers_, members_;  // strangers: oldest first
  bool ended_ = false;                         // some of them are to be swept out
  std::uint64_t refused_ = 0;
};

}  // namespace redline::comm
