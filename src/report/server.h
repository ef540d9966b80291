// A small HTTP server for people's own browsers: it gives texts that the program makes, never files, so there
// is nothing to read outside of them and nothing to write.
//
// Why not cpp-httplib: Debian 12's (0.11.4) limits each read, not a request. Eight clients that send a header
// line a second kept its eight threads from everyone else for as long as they liked (here they get 408 after
// request_seconds); stop() waited for them, more than 30 s; and one client's header lines were kept without
// limit, 118 MiB in 10 s. It also brings OpenSSL and Brotli.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace redline::report {

struct Response {
  int status = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string body;
};

struct ServerLimits {
  std::size_t connections = 256;     // at a time; more get 503
  std::size_t request_bytes = 8192;  // of a request's lines; more gets 431
  double request_seconds = 5;        // until they are there; slower gets 408
  double response_seconds = 30;      // until the answer is taken; slower is cut off
};

// One thread runs it. Requests other than GET and HEAD get 405, those that are not HTTP 400. On a loopback
// address only requests for a loopback name are answered (403 otherwise): pages of other sites cannot reach
// it through a name of theirs that points here.
class Server {
 public:
  // Listens. A numeric address; port 0 takes any that is free. Throws UsageError for a bad address,
  // UnavailableError when the address or port cannot be had.
  Server(const std::string& address, std::uint16_t port, ServerLimits limits = {});
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  std::uint16_t port() const { return port_; }
  std::string url() const;  // "http://127.0.0.1:8321/"
  bool loopback() const { return loopback_; }

  // Answers requests until stop is set, looking at it several times a second. `answer` gets the path without
  // what follows a '?'; what it throws becomes a 500.
  void serve(const std::function<Response(const std::string& path)>& answer, const std::atomic<bool>& stop);

 private:
  struct Connection;
  struct Loop;

  ServerLimits limits_;
  std::string address_;
  std::uint16_t port_ = 0;
  bool loopback_ = false;
  int listener_ = -1;
};

}  // namespace redline::report
