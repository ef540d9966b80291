// The message kinds of the control connections: of ranks, between coordinator.cpp and membership.cpp, and of
// launchers, in nodes.cpp. The handshake is in handshake.h.
#pragma once

#include <cstddef>
#include <cstdint>

namespace redline::comm {

inline constexpr std::int64_t kProtocolVersion = 3;
// The longest messages of a stranger, of one that has knocked, and of a member.
inline constexpr std::size_t kLongestKnock = 512, kLongestHello = 64 << 10, kLongestMessage = 16 << 20;

inline constexpr const char *kKind = "kind", *kWhy = "why", *kKey = "key", *kValue = "value",
                            *kCalls = "calls", *kRank = "rank", *kSize = "size", *kRun = "run",
                            *kFacts = "facts", *kHost = "host", *kProcess = "process", *kHosts = "hosts",
                            *kMembers = "members", *kCode = "code", *kProtocol = "redline", *kNonce = "nonce",
                            *kProof = "proof", *kBody = "body", *kAgain = "again", *kHang = "hang";

// Kinds, of the handshake …
inline constexpr const char *kKnock = "knock", *kChallenge = "challenge", *kHello = "hello",
                            *kWelcome = "welcome", *kRefused = "refused";
// … to the coordinator …
inline constexpr const char *kSet = "set", *kGet = "get", *kLate = "late", *kFailed = "failed", *kBye = "bye",
                            *kAccount = "account";
// … and from it; a value is also named kValue, and a beat goes both ways.
inline constexpr const char *kAll = "all", *kLost = "lost", *kBeatKind = "beat";

}  // namespace redline::comm
