// How a training process becomes one of the ranks of its job.
#pragma once

#include <atomic>
#include <memory>

#include "comm/communicator.h"
#include "comm/world.h"
#include "train/config.h"

namespace redline::train {

// Waits for the other ranks of `world` and connects to them. For a single process the result is empty or,
// with config.comm.when_alone, a communicator with itself. Ranks with another version or other options are
// refused, with what differs. Sets config.ranks, and the share of a global batch. If a peer is lost and this
// process does not end (it may be stuck in a call that cannot be interrupted), it is ended with the cause and
// exit code 75. Throws what comm::connect throws; raising `stop` ends the waiting.
std::shared_ptr<comm::Communicator> join_ranks(Config& config, const comm::World& world,
                                               const std::atomic<bool>& stop);

}  // namespace redline::train
