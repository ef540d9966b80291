// How a control connection begins: each end proves that it knows the job's token, and neither sends it.
//     client: knock, a nonce C, HMAC(token, C)      server: challenge, a nonce S
//     client: hello, its body, HMAC(token, S, C, body)      server: welcome, HMAC(token, C, S)
// or, instead of the server's part, refused, and why. Nonces are new for every connection, so an eavesdropped
// proof is useless. Only the knock can be replayed; it lets nobody in, but separates peers with the token
// from a flood of strangers at the cost of one message. The body is not parsed before its proof is checked.
// What follows the handshake is neither encrypted nor signed.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "comm/wire.h"

namespace redline::comm {

inline constexpr std::size_t kNonceBytes = 32;

// The proofs in a client's knock and hello, and in a server's welcome. `role` ("rank", "node") keeps the
// proofs of one kind of connection from being used in another.
std::string knock_proof(const std::string& token, std::string_view role, std::string_view client_nonce);
std::string client_proof(const std::string& token, std::string_view role, std::string_view server_nonce,
                         std::string_view client_nonce, std::string_view body);
std::string server_proof(const std::string& token, std::string_view role, std::string_view server_nonce,
                         std::string_view client_nonce);

// The client's knock, and its hello in answer to a challenge.
Message make_knock(const std::string& token, std::string_view role, std::string_view client_nonce);
Message make_hello(const std::string& token, std::string_view role, std::string_view server_nonce,
                   std::string_view client_nonce, const Message& body);

// A connection past its handshake.
struct Link {
  Socket socket;
  MessageReader reader;
};

struct Introduction {
  std::string host;
  std::uint16_t port = 0;
  std::string who, whom;  // for people: "rank 3", "rank 0"
  std::string role, token;
  Message body;
  Clock::time_point deadline;
  double limit_s = 0;          // what the deadline was made from, for messages
  std::function<void()> poll;  // called a few times a second; what it throws ends the waiting. May be empty
};

// Connects and introduces this process. Retries while nobody listens, the other end closes the connection, or
// a refusal allows another try. Throws PeerError at the deadline, and UsageError for any other refusal or a
// server that does not know the token.
Link introduce(const Introduction& introduction);

}  // namespace redline::comm
