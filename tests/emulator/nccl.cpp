// Stands in for NCCL between emulated GPUs of one machine: every rank is connected to rank 0, which hands
// everyone's numbers to all; each computes from these what a collective gives. As far as Redline depends on
// it, it behaves as NCCL does: a collective runs when its stream gets to it and waits for its peers without a
// limit, a connection that breaks is told by ncclCommGetAsyncError alone, an abort ends what waits and
// returns once no graph holds a collective, and two ranks are refused on one GPU unless NCCL_HOSTID differs.
#include <cuda_runtime_api.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "streams.h"
#include "tensor_core.h"

namespace {

using namespace redline::emulator;

constexpr int kSuccess = 0, kSystemError = 2, kInvalidUsage = 5, kRemoteError = 6;
constexpr int kAverage = 4;
constexpr int kFloat16 = 6, kFloat32 = 7;
constexpr std::chrono::milliseconds kAskAgain{2};

thread_local std::string last_error;

int fail(int result, const std::string& why) {
  last_error = why;
  return result;
}

class Socket {
 public:
  explicit Socket(int number = -1) : number_(number) {}
  Socket(Socket&& from) noexcept : number_(std::exchange(from.number_, -1)) {}
  Socket& operator=(Socket&& from) noexcept {
    std::swap(number_, from.number_);
    return *this;
  }
  ~Socket() {
    if (number_ >= 0) close(number_);
  }
  int number() const { return number_; }

 private:
  int number_;
};

// What all hold that may still exchange numbers: the communicator, and collectives on streams and in graphs.
struct Ranks {
  int rank = 0;
  std::vector<Socket> peers;  // by rank, for rank 0; rank 0 alone, for the others
  std::atomic<bool> aborted = false;
  std::atomic<int> error = kSuccess;
  int count = 1;
};

struct Ended {};  // thrown where nothing can be exchanged any more

// Sends or receives all bytes. Where the peer is gone, it waits for the end as a kernel of NCCL does.
void transfer(Ranks& ranks, const Socket& socket, std::byte* data, std::size_t bytes, bool out) {
  while (bytes > 0) {
    if (ranks.aborted) throw Ended();
    if (ranks.error != kSuccess) {
      std::this_thread::sleep_for(kAskAgain);
      continue;
    }
    pollfd ready{socket.number(), static_cast<short>(out ? POLLOUT : POLLIN), 0};
    if (poll(&ready, 1, static_cast<int>(kAskAgain.count())) <= 0) continue;
    const ssize_t moved = out ? send(socket.number(), data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT)
                              : recv(socket.number(), data, bytes, MSG_DONTWAIT);
    if (moved > 0) {
      data += moved;
      bytes -= static_cast<std::size_t>(moved);
    } else if (moved == 0 || (errno != EAGAIN && errno != EINTR)) {
      ranks.error = kRemoteError;
    }
  }
}
template <typename T>
void transfer(Ranks& ranks, const Socket& socket, std::vector<T>& values, bool out) {
  transfer(ranks, socket, reinterpret_cast<std::byte*>(values.data()), values.size() * sizeof(T), out);
}

using Bytes = std::vector<std::byte>;

// The bytes of every rank, by rank; as many of each.
std::vector<Bytes> all_of(Ranks& ranks, const void* own, std::size_t bytes) {
  std::vector<Bytes> all(static_cast<std::size_t>(ranks.count), Bytes(bytes));
  std::memcpy(all[static_cast<std::size_t>(ranks.rank)].data(), own, bytes);
  if (ranks.rank == 0) {
    for (std::size_t i = 1; i < all.size(); ++i) transfer(ranks, ranks.peers[i], all[i], false);
    for (std::size_t i = 1; i < all.size(); ++i) {
      for (Bytes& each : all) transfer(ranks, ranks.peers[i], each, true);
    }
  } else {
    transfer(ranks, ranks.peers[0], all[static_cast<std::size_t>(ranks.rank)], true);
    for (Bytes& each : all) transfer(ranks, ranks.peers[0], each, false);
  }
  return all;
}

template <typename T>
void reduce(const std::vector<Bytes>& all, std::size_t first, std::size_t count, int op, void* to) {
  for (std::size_t i = 0; i < count; ++i) {
    float sum = 0.0F;
    for (const Bytes& each : all) sum += to_float(reinterpret_cast<const T*>(each.data())[first + i]);
    if (op == kAverage) sum /= static_cast<float>(all.size());
    static_cast<T*>(to)[i] = rounded<T>(sum);
  }
}
void reduce(const std::vector<Bytes>& all, std::size_t first, std::size_t count, int type, int op, void* to) {
  if (type == kFloat32) return reduce<float>(all, first, count, op, to);
  if (type == kFloat16) return reduce<__half>(all, first, count, op, to);
  return reduce<__nv_bfloat16>(all, first, count, op, to);
}
std::size_t size_of(int type) { return type == kFloat32 ? sizeof(float) : sizeof(__half); }

// Listening sockets of rank 0, by key.
std::map<std::string, Socket>& listeners() {
  static std::map<std::string, Socket> all;
  return all;
}
// In the kernel's own space of names: nothing to remove.
socklen_t address_of(std::string_view key, sockaddr_un& address) {
  address.sun_family = AF_UNIX;
  key.copy(address.sun_path + 1, sizeof address.sun_path - 1);
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + key.size());
}

struct Hello {
  int rank, device;
  std::array<char, 64> host;
};

// Every rank tells rank 0 who it is, and hears from it who the others are.
void connect_all(Ranks& ranks, const char* key, const Hello& own) {
  sockaddr_un address{};
  const socklen_t size = address_of(key, address);
  if (ranks.rank == 0) {
    ranks.peers.resize(static_cast<std::size_t>(ranks.count));
    const Socket listener = std::move(listeners().at(key));
    for (int i = 1; i < ranks.count; ++i) {
      Socket peer(accept(listener.number(), nullptr, nullptr));
      std::vector<int> rank(1);
      transfer(ranks, peer, rank, false);
      ranks.peers.at(static_cast<std::size_t>(rank[0])) = std::move(peer);
    }
    return;
  }
  Socket to(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (connect(to.number(), reinterpret_cast<sockaddr*>(&address), size) != 0) ranks.error = kSystemError;
  std::vector<int> rank{own.rank};
  if (ranks.error == kSuccess) transfer(ranks, to, rank, true);
  ranks.peers.push_back(std::move(to));
}

bool shares_a_device(Ranks& ranks, const Hello& own) {
  for (const Bytes& each : all_of(ranks, &own, sizeof own)) {
    Hello other{};
    std::memcpy(&other, each.data(), sizeof other);
    if (other.rank != own.rank && other.device == own.device && other.host == own.host) return true;
  }
  return false;
}

}  // namespace

struct ncclComm {
  std::shared_ptr<Ranks> ranks = std::make_shared<Ranks>();
  cudaEvent_t order = nullptr;  // after the last collective: they run one after the other
};
struct ncclUniqueId {
  std::array<char, 128> key;
};

namespace {

using Collective = std::function<void(Ranks&)>;

int put_collective(ncclComm* comm, cudaStream_t stream, const Collective& work) {
  cudaStreamWaitEvent(stream, comm->order, 0);  // refused where the last one was part of another capture
  put(stream, [ranks = comm->ranks, work] {
    try {
      work(*ranks);
    } catch (const Ended&) {
    }
  });
  cudaEventRecord(comm->order, stream);
  return kSuccess;
}

}  // namespace

extern "C" {

int ncclGetVersion(int* version) {
  *version = 22800;
  return kSuccess;
}
int ncclGetUniqueId(ncclUniqueId* id) {
  static std::atomic<int> next = 0;
  const std::string key = "redline-emulated-nccl-" + std::to_string(getpid()) + "-" + std::to_string(next++);
  id->key = {};
  key.copy(id->key.data(), id->key.size() - 1);
  Socket listener(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  const socklen_t size = address_of(key, address);
  if (bind(listener.number(), reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      listen(listener.number(), SOMAXCONN) != 0)
    return fail(kSystemError, std::strerror(errno));
  listeners()[key] = std::move(listener);
  return kSuccess;
}
int ncclCommInitRank(ncclComm** comm, int count, ncclUniqueId id, int rank) {
  auto made = std::make_unique<ncclComm>();
  made->ranks->rank = rank;
  made->ranks->count = count;
  Hello own{rank, 0, {}};
  cudaGetDevice(&own.device);
  if (const char* host = std::getenv("NCCL_HOSTID"))
    std::string_view(host).copy(own.host.data(), own.host.size());
  connect_all(*made->ranks, id.key.data(), own);
  if (made->ranks->error != kSuccess) return fail(made->ranks->error, "a rank cannot be reached");
  if (shares_a_device(*made->ranks, own)) return fail(kInvalidUsage, "Duplicate GPU detected");
  cudaEventCreateWithFlags(&made->order, cudaEventDisableTiming);
  *comm = made.release();
  return kSuccess;
}
int ncclCommAbort(ncclComm* comm) {
  comm->ranks->aborted = true;
  while (comm->ranks.use_count() > 1) std::this_thread::sleep_for(kAskAgain);
  cudaEventDestroy(comm->order);
  delete comm;
  return kSuccess;
}
int ncclCommGetAsyncError(ncclComm* comm, int* error) {
  *error = comm->ranks->error;
  return kSuccess;
}
int ncclGroupStart() { return kSuccess; }
int ncclGroupEnd() { return kSuccess; }
int ncclAllReduce(const void* from, void* to, std::size_t count, int type, int op, ncclComm* comm,
                  cudaStream_t stream) {
  return put_collective(comm, stream, [=](Ranks& ranks) {
    reduce(all_of(ranks, from, count * size_of(type)), 0, count, type, op, to);
  });
}
int ncclReduceScatter(const void* from, void* to, std::size_t part, int type, int op, ncclComm* comm,
                      cudaStream_t stream) {
  return put_collective(comm, stream, [=](Ranks& ranks) {
    const auto all = all_of(ranks, from, part * size_of(type) * static_cast<std::size_t>(ranks.count));
    reduce(all, part * static_cast<std::size_t>(ranks.rank), part, type, op, to);
  });
}
int ncclAllGather(const void* from, void* to, std::size_t part, int type, ncclComm* comm,
                  cudaStream_t stream) {
  return put_collective(comm, stream, [=](Ranks& ranks) {
    auto* place = static_cast<std::byte*>(to);
    for (const Bytes& each : all_of(ranks, from, part * size_of(type))) {
      std::memcpy(place, each.data(), each.size());
      place += each.size();
    }
  });
}
int ncclBroadcast(const void* from, void* to, std::size_t count, int type, int root, ncclComm* comm,
                  cudaStream_t stream) {
  return put_collective(comm, stream, [=](Ranks& ranks) {
    const auto all = all_of(ranks, from, count * size_of(type));
    std::memcpy(to, all[static_cast<std::size_t>(root)].data(), count * size_of(type));
  });
}
const char* ncclGetErrorString(int result) {
  if (result == kInvalidUsage) return "invalid usage";
  return result == kRemoteError ? "remote process exited or there was a network error" : "system error";
}
const char* ncclGetLastError(ncclComm*) { return last_error.c_str(); }

}  // extern "C"
