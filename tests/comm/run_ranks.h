// Ranks as threads of one process, for tests: each has its own communicator, and they talk over real sockets.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/log.h"
#include "comm/connect.h"
#include "comm/wire.h"

namespace redline::comm {

// A port that nobody listens at now.
inline std::uint16_t free_port() {
  const Socket socket = listen_at("127.0.0.1", 0, false);
  const std::string address = own_address(socket, true);
  return static_cast<std::uint16_t>(std::stoi(address.substr(address.rfind(':') + 1)));
}

inline ConnectOptions options_of(int rank, int size, std::uint16_t port) {
  ConnectOptions options;
  options.world = {rank, size, "a test", "127.0.0.1", port, "run", "a token of the test", true};
  options.facts = {{"version", "1"}, {"--lr", "0.1"}};
  options.limits = {std::chrono::milliseconds(10'000), std::chrono::milliseconds(10'000)};
  return options;
}

// Makes spdlog's logger before there are threads: sanitizers do not see into that library.
inline const bool kHasLogger = log_shown(LogKind::warning);

// Runs one function per rank; gives what each threw, or nothing.
using Rank = std::function<void(ConnectOptions options)>;
inline std::vector<std::string> run_ranks(int size, const Rank& work, std::uint16_t port = free_port()) {
  std::vector<std::string> failures(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        work(options_of(rank, size, port));
      } catch (const std::exception& what) {
        failures[static_cast<std::size_t>(rank)] = what.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return failures;
}

}  // namespace redline::comm
