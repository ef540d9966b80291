// The words of the control connection, between coordinator.cpp and membership.cpp.
#pragma once

#include <cstddef>
#include <cstdint>

namespace redline::comm {

inline constexpr std::int64_t kProtocolVersion = 1;
// What a stranger may send before it is known, and a member after.
inline constexpr std::size_t kLongestHello = 128 << 10, kLongestMessage = 16 << 20;

inline constexpr const char *kKind = "kind", *kWhy = "why", *kKey = "key", *kValue = "value",
                            *kCalls = "calls", *kRank = "rank", *kSize = "size", *kRun = "run",
                            *kToken = "token", *kFacts = "facts", *kHost = "host", *kProcess = "process",
                            *kAddress = "address", *kMembers = "members", *kProtocol = "redline";

// Kinds, to the coordinator …
inline constexpr const char *kHello = "hello", *kSet = "set", *kGet = "get", *kLate = "late",
                            *kFailed = "failed", *kBye = "bye";
// … and from it; a value is also named kValue, and a beat goes both ways.
inline constexpr const char *kRefused = "refused", *kAll = "all", *kLost = "lost", *kBeatKind = "beat";

}  // namespace redline::comm
