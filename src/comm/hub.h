// The server's end of many control connections, for one thread. A new connection is a stranger until it has
// knocked with the job's token, then a guest, and a member once its handshake is done (handshake.h).
// Strangers can be many and hostile: each gets a single read, slow ones are dropped, and when there is no
// room the oldest is dropped. They never take the place of a guest or member.
#pragma once

#include <sys/epoll.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "comm/wire.h"

namespace redline::comm {

class Hub {
 public:
  class Connection {
   public:
    int id = -1;  // whose it is; set by Handler::hello
    std::string address() const { return peer_address(socket_, true); }
    bool all_sent() const { return unsent_.empty(); }

   private:
    friend class Hub;
    enum class Stage { stranger, guest, member };
    Stage stage_ = Stage::stranger;
    Socket socket_;
    std::string nonce_, client_nonce_;
    MessageReader reader_{0};
    std::deque<std::shared_ptr<const std::string>> unsent_;
    std::size_t sent_ = 0;  // bytes of the first of them
    Clock::time_point since_ = Clock::now();
    bool closing_ = false, writing_ = false, closed_ = false;
  };

  // Why a connection is refused; empty: it is admitted.
  struct Refusal {
    std::string why;
    bool again = false;  // it may be let in later
  };

  // Handles the events of members; called from turn(). A handler may close any connection.
  class Handler {
   public:
    virtual ~Handler() = default;
    // A peer that knows the token. Once admitted, it can be sent to.
    virtual Refusal hello(Connection& connection, const Message& body) = 0;
    virtual void welcomed(Connection& connection) = 0;  // it was told so: what it is sent comes after that
    virtual void message(Connection& connection, const Message& message) = 0;  // may throw DataError
    // A member's connection was closed by the other end, or (`why`) broke the protocol. The connection is
    // destroyed after this call.
    virtual void closed(Connection& connection, const std::string& why) = 0;
  };

  // Raises this process's limit on open files as far as allowed. Throws UnavailableError.
  Hub(Socket listener, std::string role, std::string token);
  ~Hub();
  Hub(const Hub&) = delete;
  Hub& operator=(const Hub&) = delete;

  std::string address(const std::string& host) const { return listening_address(listener_, host); }
  void turn(std::chrono::milliseconds wait, Handler& handler);
  // Whether more members are expected; initially true. If not, new connections are served only a few times a
  // second, so that a flood does not slow down the members.
  void expect(bool more);

  void send(Connection& connection, const Message& message);
  void send(Connection& connection, std::shared_ptr<const std::string> encoded);  // one text to many
  void close(Connection& connection);  // once all is sent; the handler is not told

 private:
  void accept_some(int most, Handler& handler);
  void accept_one(Socket socket, Handler& handler);
  void read(Connection& connection, Handler& handler);
  void hear(Connection& connection, const Message& message, Handler& handler);
  void answer_knock(Connection& connection, const Message& knock);
  void answer_hello(Connection& connection, const Message& hello, Handler& handler);
  void move(Connection& connection, Connection::Stage stage, std::size_t longest);
  void refuse(Connection& connection, const std::string& why, bool again = false);
  void flush(Connection& connection);
  void end(Connection& connection);
  void drop_late(std::list<Connection>& waiting);
  void sweep();

  const Socket listener_, poller_;
  const std::string role_, token_;
  std::list<Connection> strangers_, guests_, members_;  // but for members: oldest first
  bool ended_ = false;                                  // some of them are to be swept out
  std::vector<epoll_event> events_;                     // of one turn
  bool expecting_ = true;
  Clock::time_point accepted_{};
  std::uint64_t refused_ = 0;
};

}  // namespace redline::comm
