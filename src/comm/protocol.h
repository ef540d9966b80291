// The message kinds and times of the control connections: of ranks, between coordinator.cpp and
// membership.cpp, and of launchers, in nodes.cpp. The handshake is in handshake.h.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace redline::comm {

inline constexpr std::int64_t kProtocolVersion = 3;
// The longest messages of a stranger, of one that has knocked, and of a member.
inline constexpr std::size_t kLongestKnock = 512, kLongestHello = 64 << 10, kLongestMessage = 16 << 20;

inline constexpr std::chrono::milliseconds kPoll{50};  // how long a loop waits before it looks around
inline constexpr std::chrono::milliseconds kRetry{200};
inline constexpr std::chrono::milliseconds kReminder{5'000};     // between reports on who is waited for
inline constexpr std::chrono::milliseconds kLeaveTime{5'000};    // for the others, at the end
inline constexpr std::chrono::milliseconds kVerdictTime{3'000};  // for rank 0 to say why a call failed

inline double seconds(std::chrono::nanoseconds time) { return std::chrono::duration<double>(time).count(); }

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
