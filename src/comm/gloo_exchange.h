// Gloo's collectives as exchanges for benchmarks.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "comm/exchange.h"

namespace gloo {
class Context;
}

namespace redline::comm {

// Runs a call of Gloo, and turns its failures into PeerError; `name` is for people.
using GuardedCall = std::function<void(const char* name, const std::function<void()>& work)>;

std::unique_ptr<Fabric> make_gloo_fabric(std::shared_ptr<gloo::Context> context, std::string description,
                                         std::chrono::milliseconds limit, GuardedCall call);

}  // namespace redline::comm
