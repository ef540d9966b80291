#include "comm/communicator.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "base/machine.h"
#include "comm/connect.h"
#include "comm/exchange.h"

namespace redline::comm {
namespace {

class Single final : public Communicator {
 public:
  Single() : self_{inspect_machine().hostname, ::getpid(), ""} {}
  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::string description() const override { return "alone"; }
  const Member& member(int) const override { return self_; }
  void all_reduce(void*, std::size_t, Type, Channel, Algorithm) override {}
  void broadcast(std::span<std::byte>, int) override {}
  void barrier() override {}
  void wait(const char*, const std::function<bool()>& done) override {
    while (!done()) std::this_thread::sleep_for(kAskAgain);
  }
  void leave(const std::string&, ExitCode) noexcept override {}
  std::unique_ptr<Fabric> make_fabric() override {
    throw UsageError("a single process has no peers to exchange with: redline launch -g 2 -- bench comm");
  }

 private:
  Member self_;
};

}  // namespace

std::size_t size_of(Type type) {
  switch (type) {
    case Type::f32:
      return 4;
    case Type::f64:
      return 8;
    case Type::f16:
    case Type::bf16:
      return 2;
  }
  throw InternalError("unknown element type {}", static_cast<int>(type));
}

std::vector<double> Communicator::gather(double value) {
  std::vector<double> values(static_cast<std::size_t>(size()));
  values[static_cast<std::size_t>(rank())] = value;
  all_reduce(values);
  return values;
}

std::unique_ptr<Communicator> make_single() { return std::make_unique<Single>(); }

std::function<void(const std::string& cause)> end_process(int rank) {
  return [rank](const std::string& cause) {
    print_stderr("redline: error: rank {} is stuck and ends now: {}\n", rank, cause);
    std::_Exit(static_cast<int>(ExitCode::try_again));
  };
}

}  // namespace redline::comm
