#include "comm/handshake.h"

#include <poll.h>

#include <algorithm>
#include <optional>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "base/sha256.h"
#include "comm/communicator.h"
#include "comm/protocol.h"

namespace redline::comm {
namespace {

using std::chrono::milliseconds;

// Until another connection is tried. The kernel retries a busy listener less and less often, and a listener
// whose queue was full may have dropped a connection that looks open here.
constexpr milliseconds kConnectTime{3'000}, kAnswerTime{10'000};
// The timeout for the challenge, initially and at most. It doubles each time: a client that gives up its
// place in a long queue starts again at the end.
constexpr milliseconds kChallengeTime{4'000}, kMostChallengeTime{64'000};
constexpr const char* kNoAnswer = "it does not answer";

std::string proof(const std::string& token, std::string_view label, std::string_view role,
                  std::string_view first, std::string_view second, std::string_view body) {
  std::string message = fmt::format("redline {} {}", role, label);
  message += '\0';  // what follows has fixed lengths, but for the last
  message.append(first).append(second).append(body);
  return hmac_sha256(token, message);
}

// The next message; none, with the reason, if the connection ends first or takes too long.
std::optional<Message> receive(Link& link, const Introduction& introduction, milliseconds limit,
                               std::string& why) {
  const Clock::time_point deadline = std::min(introduction.deadline, Clock::now() + limit);
  for (;;) {
    const MessageReader::State state = link.reader.read_from(link.socket);
    try {
      if (auto message = link.reader.next()) return message;
    } catch (const DataError&) {
      why = "something else listens there";
      return {};
    }
    if (state == MessageReader::State::closed) {
      why = "it closed the connection";
      return {};
    }
    if (Clock::now() >= deadline) {
      why = kNoAnswer;
      return {};
    }
    if (introduction.poll) introduction.poll();
    pollfd entry{link.socket.fd(), POLLIN, 0};
    ::poll(&entry, 1, static_cast<int>(kPoll.count()));
  }
}

// The server's answer to a message; none, with the reason, if another connection may succeed.
std::optional<Message> ask(Link& link, const Introduction& by, const Message& question, milliseconds limit,
                           std::string& why) {
  if (!send_all(link.socket, encode(question), by.deadline)) {
    why = "it closed the connection";
    return {};
  }
  auto answer = receive(link, by, limit, why);
  if (!answer || text_in(*answer, kKind) != kRefused) return answer;
  why = text_in(*answer, kWhy);
  if (number_in(*answer, kAgain, 0) != 0) return {};  // it may be about to make way for this one's job
  throw UsageError("{} at {} refused this process: {}", by.whom, peer_address(link.socket, true), why);
}

// One attempt. Empty, with the reason, if another may succeed.
std::optional<Link> try_once(const Introduction& by, milliseconds patience, std::string& why) {
  Link link{connect_to(by.host, by.port, std::min(by.deadline, Clock::now() + kConnectTime), why, by.poll),
            MessageReader(kLongestMessage)};
  if (link.socket.fd() < 0) return {};
  const std::string client_nonce = random_bytes(kNonceBytes);
  const auto challenge = ask(link, by, make_knock(by.token, by.role, client_nonce), patience, why);
  if (!challenge) return {};
  const std::string server_nonce = bytes_in(*challenge, kNonce);
  if (number_in(*challenge, kProtocol, 0) != kProtocolVersion || server_nonce.size() != kNonceBytes)
    throw UsageError("{} at {} port {} speaks another version of the protocol than {}", by.whom, by.host,
                     by.port, by.who);
  const auto welcome =
      ask(link, by, make_hello(by.token, by.role, server_nonce, client_nonce, by.body), kAnswerTime, why);
  if (!welcome) return {};
  if (!same_secret(bytes_in(*welcome, kProof), server_proof(by.token, by.role, server_nonce, client_nonce)))
    throw UsageError(
        "the process at {} port {} does not know this job's token: does it belong to another job?", by.host,
        by.port);
  return link;
}

}  // namespace

std::string knock_proof(const std::string& token, std::string_view role, std::string_view client_nonce) {
  return proof(token, "knock", role, client_nonce, "", "");
}

std::string client_proof(const std::string& token, std::string_view role, std::string_view server_nonce,
                         std::string_view client_nonce, std::string_view body) {
  return proof(token, "hello", role, server_nonce, client_nonce, body);
}

std::string server_proof(const std::string& token, std::string_view role, std::string_view server_nonce,
                         std::string_view client_nonce) {
  return proof(token, "welcome", role, client_nonce, server_nonce, "");
}

Message make_knock(const std::string& token, std::string_view role, std::string_view client_nonce) {
  return {{kKind, kKnock},
          {kProtocol, kProtocolVersion},
          {kNonce, binary(client_nonce)},
          {kProof, binary(knock_proof(token, role, client_nonce))}};
}

Message make_hello(const std::string& token, std::string_view role, std::string_view server_nonce,
                   std::string_view client_nonce, const Message& body) {
  const std::string bytes = encode_body(body);
  return {{kKind, kHello},
          {kBody, binary(bytes)},
          {kProof, binary(client_proof(token, role, server_nonce, client_nonce, bytes))}};
}

Link introduce(const Introduction& by) {
  constexpr auto kDoubtful = std::chrono::seconds(30);
  std::string why, told;
  const Clock::time_point begun = Clock::now();
  Clock::time_point reminded = begun;
  bool warned = false;
  for (milliseconds patience = kChallengeTime;;) {
    std::string reason;
    if (auto link = try_once(by, patience, reason)) return std::move(*link);
    if (reason == kNoAnswer) patience = std::min(2 * patience, kMostChallengeTime);
    // The error of an attempt cut short by the deadline says less than that of the one before it.
    if (why.empty() || Clock::now() < by.deadline) why = reason;
    if (by.poll) by.poll();
    if (Clock::now() + kRetry >= by.deadline)
      throw PeerError(fmt::format(
          "{} cannot reach {} at {} port {} within {:g} s: {}; is it running, and is the port open?", by.who,
          by.whom, by.host, by.port, by.limit_s, why));
    if (why != told) log_debug("{} waits for {} at {} port {}: {}", by.who, by.whom, by.host, by.port, why);
    told = why;
    if (const auto now = Clock::now(); now - reminded >= kReminder) {
      reminded = now;
      const std::string text =
          fmt::format("{} waits for {} at {} port {}, for {:.0f} s more: {}", by.who, by.whom, by.host,
                      by.port, std::chrono::duration<double>(by.deadline - now).count(), why);
      // Once where it is seen, too, if only rank 0 speaks; there may be thousands of others.
      const bool warns = !warned && now - begun >= kDoubtful;
      warned |= warns;
      warns ? log_warning("{}", text) : log_info("{}", text);
    }
    // Not all at the same moment.
    std::this_thread::sleep_for(kRetry / 2 + milliseconds(random_bytes(1)[0] & 0x7f));
  }
}

}  // namespace redline::comm
