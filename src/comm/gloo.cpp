// Gloo's collectives behind the Communicator.
#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <utility>

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/log.h"
#include "base/machine.h"
#include "base/signals.h"
#include "comm/connect.h"
#include "comm/coordinator.h"
#include "comm/gloo_exchange.h"
#include "comm/gloo_sums.h"
#include "comm/membership.h"
#include "comm/protocol.h"
#include "comm/wire.h"

namespace redline::comm {
namespace {

using std::chrono::milliseconds;

// A rank whose call has failed knows it, and may write a checkpoint before it ends.
constexpr milliseconds kSavingTime{600'000};
// Up to here the number of messages decides, and bcube sends fewer; beyond, a ring moves the fewest bytes.
constexpr std::size_t kSmallBytes = 64 << 10;

// Gloo's view of the control connection.
class KeyStore final : public gloo::rendezvous::Store {
 public:
  // The limit is that of all calls together.
  KeyStore(Membership& membership, milliseconds limit)
      : membership_(membership), deadline_(Clock::now() + limit) {}
  void set(const std::string& key, const std::vector<char>& value) override { membership_.set(key, value); }
  std::vector<char> get(const std::string& key) override {
    const auto left = std::chrono::duration_cast<milliseconds>(deadline_ - Clock::now());
    return membership_.get(key, std::max(milliseconds(0), left));
  }
  void wait(const std::vector<std::string>& keys) override {
    for (const std::string& key : keys) get(key);
  }
  void wait(const std::vector<std::string>& keys, const milliseconds&) override { wait(keys); }

 private:
  Membership& membership_;
  const Clock::time_point deadline_;
};

// Calls `late` from a separate thread, unless it is destroyed before the limit.
class Alarm {
 public:
  Alarm(milliseconds limit, std::function<void()> late)
      : thread_([this, limit, late = std::move(late)] {
          std::unique_lock lock(mutex_);
          if (!changed_.wait_for(lock, limit, [this] { return off_; })) late();
        }) {}
  ~Alarm() {
    {
      const std::lock_guard lock(mutex_);
      off_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  Alarm(const Alarm&) = delete;
  Alarm& operator=(const Alarm&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool off_ = false;
  std::thread thread_;  // last: it uses the others
};

// Gloo's ranks need addresses of one kind, though they may have reached rank 0 by both: IPv4 if any has come
// by it. Those that came by loopback are of rank 0's machine, and say nothing.
bool by_ipv4(const std::vector<Member>& members, const std::string& own) {
  bool any = false, ipv4 = false;
  for (const Member& member : members) {
    if (member.address.starts_with("127.") || member.address == "[::1]") continue;
    any = true;
    ipv4 = ipv4 || !member.address.starts_with('[');
  }
  return any ? ipv4 : own.find(':') == std::string::npos;
}

// Releases of Gloo differ in how they take the store.
template <typename Context, typename Store, typename Device>
void connect_mesh(Context& context, const Store& store, Device& device) {
  if constexpr (requires { context.connectFullMesh(*store, device); })
    context.connectFullMesh(*store, device);
  else
    context.connectFullMesh(store, device);
}

class GlooCommunicator final : public Communicator {
 public:
  explicit GlooCommunicator(const ConnectOptions& options)
      : limits_(options.limits),
        coordinator_(options.world.rank == 0
                         ? std::make_unique<Coordinator>(
                               options.world, options.facts, options.limits,
                               [this](const auto& file, const auto& account) { keep(file, account); })
                         : nullptr),
        membership_(options.world, options.facts, options.limits, options.stop, position_),
        context_(std::make_shared<gloo::rendezvous::Context>(options.world.rank, options.world.size)) {
    address_ = membership_.own_address();
    if (!options.world.one_machine)
      address_ = reachable_address(address_, by_ipv4(membership_.members(), address_));
    check_interface(options.interface);
    gloo::transport::tcp::attr attributes;
    if (options.interface.empty())
      attributes.hostname = address_;
    else
      attributes.iface = options.interface;
    context_->setTimeout(limits_.collective);
    const std::shared_ptr<gloo::rendezvous::Store> store =
        std::make_shared<KeyStore>(membership_, limits_.collective);
    // Gloo has a time limit for each peer. A rank that is not connected to all of them by then reports it,
    // and rank 0 names the rank they wait for: one that has not begun.
    const Call connecting(*position_, Channel::control, "connecting to its peers", 0);
    membership_.on_stuck(options.on_stuck, options.grace);
    const Alarm alarm(limits_.collective, [this] { membership_.report_late(); });
    try {
      auto device = gloo::transport::tcp::CreateDevice(attributes);
      connect_mesh(*context_, store, device);
    } catch (const Error&) {
      throw;
    } catch (const std::exception& what) {
      fail("connecting to its peers", what.what());
    }
    if (!options.interface.empty()) address_ = options.interface;
  }

  int rank() const override { return context_->rank; }
  int size() const override { return context_->size; }
  std::string description() const override { return fmt::format("gloo over {}", address_); }
  const Member& member(int rank) const override {
    return membership_.members().at(static_cast<std::size_t>(rank));
  }

  void all_reduce(void* values, std::size_t count, Type type, Channel channel, Algorithm algorithm) override {
    if (count == 0) return;
    call(name_of(channel), channel, count * size_of(type), [&] {
      gloo::AllreduceOptions options(context_);
      with_sum(type, values, [&](auto* typed, Sum sum) {
        options.setOutput(typed, count);
        options.setReduceFunction(sum);
      });
      const bool ring = algorithm == Algorithm::ring ||
                        (algorithm == Algorithm::automatic && count * size_of(type) > kSmallBytes);
      options.setAlgorithm(ring ? gloo::AllreduceOptions::Algorithm::RING
                                : gloo::AllreduceOptions::Algorithm::BCUBE);
      options.setTag(static_cast<std::uint32_t>(channel));
      options.setTimeout(limits_.collective);
      gloo::allreduce(options);
    });
  }

  void broadcast(std::span<std::byte> bytes, int root) override {
    if (bytes.empty()) return;
    call("a broadcast", Channel::control, bytes.size(), [&] {
      gloo::BroadcastOptions options(context_);
      options.setOutput(reinterpret_cast<char*>(bytes.data()), bytes.size());
      options.setRoot(root);
      options.setTimeout(limits_.collective);
      gloo::broadcast(options);
    });
  }

  void barrier() override {
    call("a barrier", Channel::control, 0, [&] {
      gloo::BarrierOptions options(context_);
      options.setTimeout(limits_.collective);
      gloo::barrier(options);
    });
  }

  void wait(const char* name, const std::function<bool()>& done) override {
    const Call open(*position_, Channel::gradients, name, 0);
    const Clock::time_point begun = Clock::now();
    try {
      while (!done()) {
        if (!membership_.cause(milliseconds(0)).empty()) {
          membership_.allow(kSavingTime);
          throw membership_.error();
        }
        if (Clock::now() - begun >= limits_.collective) {
          membership_.report_late();
          fail(name, "it took too long");
        }
        std::this_thread::sleep_for(kAskAgain);
      }
    } catch (const PeerError&) {
      throw;
    } catch (const Error& what) {
      fail(name, what.what());
    }
  }

  void leave(const std::string& why, ExitCode code) noexcept override { membership_.leave(why, code); }

  std::unique_ptr<Fabric> make_fabric() override {
    return make_gloo_fabric(
        context_, description(), limits_.collective,
        [this](const char* name, const auto& work) { call(name, Channel::control, 0, work); });
  }

 private:
  void check_interface(const std::string& name) {
    const std::vector<std::string> all = interface_names();
    if (name.empty() || std::ranges::find(all, name) != all.end()) return;
    const std::string why =
        fmt::format("--comm-interface {}: {} has {}", name, inspect_machine().hostname, fmt::join(all, ", "));
    membership_.leave(why);
    throw UnavailableError("{}", why);
  }

  static const char* name_of(Channel channel) {
    switch (channel) {
      case Channel::gradients:
        return "an all-reduce of gradients";
      case Channel::norms:
        return "an all-reduce of batch norms' sums";
      case Channel::control:
        break;
    }
    return "an all-reduce";
  }

  // A rank that has begun fewer than its peers is the one they wait for.
  class Call {
   public:
    Call(Position& position, Channel channel, const char* name, std::size_t bytes)
        : position_(position), channel_(static_cast<std::size_t>(channel)) {
      position_.begin_call(channel_, name, bytes);
    }
    ~Call() { position_.end_call(channel_); }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    Position& position_;
    const std::size_t channel_;
  };

  // What ranks were at when the job hung.
  void keep(const std::string& file, const std::string& account) {
    try {
      const std::filesystem::path folder = position_->folder();
      if (!folder.empty()) return keep_account(folder, file, account);
    } catch (const Error& failure) {
      log_warning("{}", failure.what());
    }
    print_stderr("{}", account);
  }

  template <typename Work>
  void call(const char* name, Channel channel, std::size_t bytes, const Work& work) {
    const Call open(*position_, channel, name, bytes);
    const Clock::time_point begun = Clock::now();
    try {
      work();
    } catch (const gloo::Exception& what) {
      if (Clock::now() - begun >= limits_.collective) membership_.report_late();
      fail(name, what.what());
    }
  }

  [[noreturn]] void fail(const char* name, const char* what) {
    membership_.allow(kSavingTime);
    if (!membership_.cause(kVerdictTime).empty()) throw membership_.error();
    throw PeerError(fmt::format(
        "rank {} failed in {}, though no rank is known to be lost: the network between them broke "
        "({})",
        context_->rank, name, what));
  }

  const TimeLimits limits_;
  std::unique_ptr<Coordinator> coordinator_;  // on rank 0; before the membership, which talks to it
  Membership membership_;
  std::shared_ptr<gloo::rendezvous::Context> context_;
  std::string address_;
};

}  // namespace

std::unique_ptr<Communicator> connect(const ConnectOptions& options) {
  if (options.world.size == 1) return make_single();
  // Gloo writes to connections that the other end may have closed: that must be an error of the call, not a
  // signal.
  outlive_readers();
  return std::make_unique<GlooCommunicator>(options);
}

}  // namespace redline::comm
