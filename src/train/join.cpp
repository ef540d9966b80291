#include "train/join.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <string_view>
#include <vector>

#include "base/build_info.h"
#include "base/error.h"
#include "base/log.h"
#include "base/topology.h"
#include "comm/connect.h"
#include "train/config_file.h"

namespace redline::train {
namespace {

// Options that each rank may have its own way: where its data, cores and network are.
constexpr std::array<std::string_view, 4> kOwn = {"data.path", "data.workers", "device.threads",
                                                  "comm.interface"};
// Of the options in [run], those that decide what every rank does next.
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

std::vector<int> allowed_processors() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  std::vector<int> processors;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return processors;
  for (int i = 0; i < CPU_SETSIZE; ++i)
    if (CPU_ISSET(i, &allowed)) processors.push_back(i);
  return processors;
}

// Two ranks that may use the same cores would pin their threads to the same ones. Those that whoever launched
// them has given cores of their own keep them.
void share_cores(comm::Communicator& communicator) {
  const comm::Neighbours place = comm::neighbours(communicator);
  const std::vector<int> processors = allowed_processors();
  double mask = 0;  // an exact number for as many processors as there are ranks to compare
  for (const int processor : processors) mask = std::fmod(mask * 31 + processor + 1, 0x1p40);
  const std::vector<double> masks = communicator.gather(mask);
  const std::string& host = communicator.member(communicator.rank()).host;
  for (int rank = 0; rank < communicator.size(); ++rank)
    if (communicator.member(rank).host == host && masks[static_cast<std::size_t>(rank)] != mask) return;
  if (place.count < 2 || processors.empty()) return;
  cpu_set_t own;
  CPU_ZERO(&own);
  for (const int processor : share_of(physical_cores(processors), place.index, place.count))
    CPU_SET(processor, &own);
  sched_setaffinity(0, sizeof own, &own);  // a refusal costs speed, not results
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
  share_cores(*communicator);
  log_info("{} ranks, launched by {}: {}", world.size, world.launcher, communicator->description());
  return communicator;
}

}  // namespace redline::train
