#include "report/server.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "../base/temporary_folder.h"
#include "base/clock.h"
#include "base/error.h"
#include "report/live.h"
#include "run_folder.h"

namespace redline::report {
namespace {

// A client that can be as slow and as rude as wanted.
class Client {
 public:
  explicit Client(std::uint16_t port) : socket_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
    const timeval limit{10, 0};
    setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  }
  ~Client() { close(socket_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  bool connected() const { return connected_; }
  void say(const std::string& text) const { send(socket_, text.data(), text.size(), MSG_NOSIGNAL); }
  std::string hear() const {  // until the server hangs up
    std::string text;
    char buffer[65536];
    for (ssize_t count; (count = recv(socket_, buffer, sizeof buffer, 0)) > 0;)
      text.append(buffer, static_cast<std::size_t>(count));
    return text;
  }

 private:
  int socket_;
  bool connected_ = false;
};

// The live page of a run, served by a thread.
class LiveServer : public ::testing::Test {
 protected:
  LiveServer() : server_("127.0.0.1", 0, {.connections = 60, .request_bytes = 2048, .request_seconds = 0.3}) {
    write_run(folder_.path() / "run", 20);
    write_text(folder_.path() / "secret", "not for the web");
    thread_ = std::thread([this] { serve_live(server_, {folder_.path() / "run"}, stop_); });
  }
  ~LiveServer() override {
    stop_ = true;
    thread_.join();
  }

  std::string ask(const std::string& request) const {
    const Client client(server_.port());
    client.say(request);
    return client.hear();
  }
  std::string get(const std::string& path, const std::string& host = "localhost") const {
    return ask("GET " + path + " HTTP/1.1\r\nHost: " + host + "\r\n\r\n");
  }
  static std::string first_line(const std::string& answer) { return answer.substr(0, answer.find("\r\n")); }

  const TemporaryFolder folder_;
  Server server_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

TEST_F(LiveServer, GivesThePageAndItsData) {
  const std::string page = get("/");
  EXPECT_EQ(first_line(page), "HTTP/1.1 200 OK");
  EXPECT_NE(page.find("data-live=\"true\""), std::string::npos);
  EXPECT_NE(page.find("</html>"), std::string::npos);
  const std::string data = get("/data.json?t=1", "127.0.0.1:1234");
  EXPECT_NE(data.find("Content-Type: application/json"), std::string::npos);
  EXPECT_NE(data.find("\"schema\":\"redline.report\""), std::string::npos);
  const std::string head = ask("HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(head.substr(head.find("\r\n\r\n")), "\r\n\r\n");
}

TEST_F(LiveServer, ShowsWhatTheRunDidSince) {
  EXPECT_EQ(get("/data.json").find("\"steps\":21,"), std::string::npos);
  append_text(folder_.path() / "run" / "metrics.jsonl", step_line(21));
  const Stopwatch watch;
  while (get("/data.json").find("\"steps\":21,") == std::string::npos && watch.seconds() < 10)
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_NE(get("/data.json").find("\"steps\":21,"), std::string::npos);
}

TEST_F(LiveServer, HasNoPathToFiles) {
  for (const char* path : {"/../secret", "/..%2fsecret", "//secret", "/run/../../secret", "/metrics.jsonl",
                           "/config.toml", "secret", "/%00", "http://localhost/secret"}) {
    const std::string answer = get(path);
    EXPECT_EQ(first_line(answer), "HTTP/1.1 404 Not Found") << path;
    EXPECT_EQ(answer.find("not for the web"), std::string::npos);
  }
}

TEST_F(LiveServer, RefusesWhatIsNoPlainQuestion) {
  EXPECT_EQ(first_line(ask("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc")),
            "HTTP/1.1 405 Method Not Allowed");
  EXPECT_EQ(first_line(ask("hello\r\n\r\n")), "HTTP/1.1 400 Bad Request");
  EXPECT_EQ(first_line(get("/", "attacker.example")), "HTTP/1.1 403 Forbidden");
  EXPECT_EQ(first_line(ask("GET / HTTP/1.1\r\n\r\n")), "HTTP/1.1 403 Forbidden");
}

TEST_F(LiveServer, RefusesWhatIsTooLargeOrTooSlow) {
  EXPECT_EQ(first_line(ask("GET /" + std::string(20'000, 'a') + " HTTP/1.1\r\nHost: localhost\r\n\r\n")),
            "HTTP/1.1 431 Request Header Fields Too Large");
  const Client slow(server_.port());
  slow.say("GET / HT");
  EXPECT_EQ(first_line(slow.hear()), "HTTP/1.1 408 Request Timeout");
  EXPECT_EQ(first_line(get("/")), "HTTP/1.1 200 OK");
}

TEST_F(LiveServer, ServesFiftyAtOnceWhileOthersDawdle) {
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 50; ++i) clients.push_back(std::make_unique<Client>(server_.port()));
  for (const auto& client : clients) {
    ASSERT_TRUE(client->connected());
    client->say("GET /data.json HTTP/1.1\r\nHost: localhost\r\n\r\n");
  }
  for (const auto& client : clients) {
    const std::string answer = client->hear();
    EXPECT_EQ(first_line(answer), "HTTP/1.1 200 OK");
    EXPECT_TRUE(answer.ends_with("}"));
  }
}

TEST_F(LiveServer, GivesMetricsToPrometheus) {
  const std::string answer = get("/metrics");
  EXPECT_EQ(first_line(answer), "HTTP/1.1 200 OK");
  EXPECT_NE(answer.find("Content-Type: text/plain; version=0.0.4"), std::string::npos);
  EXPECT_NE(answer.find("\nredline_steps_total{run=\"run\"} 20\n"), std::string::npos);
  EXPECT_EQ(first_line(get("/metrics", "attacker.example")), "HTTP/1.1 403 Forbidden");
}

TEST_F(LiveServer, ManySmallHeaderLinesAreTooLargeTogether) {
  std::string request = "GET / HTTP/1.1\r\nHost: localhost\r\n";
  for (int i = 0; i < 1000; ++i) request += "a: b\r\n";
  EXPECT_EQ(first_line(ask(request + "\r\n")), "HTTP/1.1 431 Request Header Fields Too Large");
}

// A time limit of each read would let them go on for ever.
TEST_F(LiveServer, ClientsThatTrickleHoldUpNobodyAndGetNoAnswer) {
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 40; ++i) clients.push_back(std::make_unique<Client>(server_.port()));
  for (const auto& client : clients) client->say("GET / HTTP/1.1\r\n");
  const Stopwatch watch;
  EXPECT_EQ(first_line(get("/data.json")), "HTTP/1.1 200 OK");
  EXPECT_LT(watch.seconds(), 5);
  while (watch.seconds() < 0.6) {  // twice the time of a request
    for (const auto& client : clients) client->say("a: b\r\n");
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  for (const auto& client : clients) EXPECT_EQ(first_line(client->hear()), "HTTP/1.1 408 Request Timeout");
}

TEST(Server, StopsAtOnceWhileAClientTrickles) {
  Server server("127.0.0.1", 0);
  std::atomic<bool> stop = false;
  std::thread thread([&] { server.serve([](const std::string&) { return Response{}; }, stop); });
  const Client client(server.port());
  client.say("GET / HTTP/1.1\r\n");
  const Stopwatch watch;
  stop = true;
  thread.join();
  EXPECT_LT(watch.seconds(), 2);
}

TEST(Server, RefusesAnAddressThatIsNone) {
  EXPECT_THROW(Server("example.org", 0), UsageError);
  const Server first("127.0.0.1", 0);
  EXPECT_THROW(Server("127.0.0.1", first.port()), UnavailableError);
}

}  // namespace
}  // namespace redline::report
