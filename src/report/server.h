// A small HTTP server for a user's own browser. It serves text that the program generates, never files, and
// accepts no uploads.
//
// Why not cpp-httplib: Debian 12's (0.11.4) limits each read, not a request. Eight clients that sent one
// header line a second blocked its eight threads for as long as they liked (here they get 408 after
// request_seconds); stop() waited for them for more than 30 s; and one client's header lines were stored
// without limit, 118 MiB in 10 s. It also depends on OpenSSL and Brotli.
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
  std::size_t request_bytes = 8192;  // of request line and headers; more gets 431
  double request_seconds = 5;        // to receive them; slower gets 408
  double response_seconds = 30;      // to send the response; slower is cut off
};

// Runs in one thread. Requests other than GET and HEAD get 405; those that are not HTTP get 400. On a
// loopback address only requests for a loopback host name are answered (403 otherwise), which stops DNS
// rebinding.
class Server {
 public:
  // Listens on a numeric address; port 0 takes any free port. Throws UsageError for a bad address,
  // UnavailableError if the address or port is not available.
  Server(const std::string& address, std::uint16_t port, ServerLimits limits = {});
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  std::uint16_t port() const { return port_; }
  std::string url() const;  // "http://127.0.0.1:8321/"
  bool loopback() const { return loopback_; }

  // Answers requests until stop is set, checking it several times a second. `answer` gets the path without
  // the query; if it throws, the response is 500.
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
