#include "train/join.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <string_view>

#include "base/build_info.h"
#include "base/error.h"
#include "base/log.h"
#include "comm/connect.h"
#include "train/config_file.h"

namespace redline::train {
namespace {

// Options that may differ between ranks: those of their data, cores and network.
constexpr std::array<std::string_view, 4> kOwn = {"data.path", "data.workers", "device.threads",
                                                  "comm.interface"};
// The options of [run] that decide what every rank does next.
constexpr std::array<std::string_view, 5> kShared = {"seed", "eval_every", "eval_offset", "target_accuracy",
                                                     "patience"};

comm::Facts facts_of(const Config& config) {
  comm::Facts facts{{"version", build_info().version}, {"commit", build_info().commit}};
  for (const Field& field : fields()) {
    const bool shared = field.section != "run" || std::ranges::find(kShared, field.key) != kShared.end();
    if (!shared || std::ranges::find(kOwn, field.path()) != kOwn.end()) continue;
    facts.emplace_back(field.flag(), value_text(field, config));
  }
  return facts;
}

std::chrono::milliseconds milliseconds_of(double seconds) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(1000 * seconds));
}

}  // namespace

std::shared_ptr<comm::Communicator> join_ranks(Config& config, const comm::World& world,
                                               const std::atomic<bool>& stop) {
  validate(config);
  config.ranks = world.size;
  share_global_batch(config);
  if (world.size == 1) return config.comm.when_alone ? comm::make_single() : nullptr;
  comm::ConnectOptions options;
  options.world = world;
  options.stop = &stop;
  options.facts = facts_of(config);
  options.limits = {milliseconds_of(config.comm.join_timeout), milliseconds_of(config.comm.timeout)};
  options.interface = config.comm.interface;
  options.on_stuck = comm::end_process(world.rank);
  std::shared_ptr<comm::Communicator> communicator = comm::connect(options);
  log_info("{} ranks, launched by {}: {}", world.size, world.launcher, communicator->description());
  return communicator;
}

}  // namespace redline::train
