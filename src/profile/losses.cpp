// Where the time of a step is lost, and what to try.
#include <algorithm>
#include <functional>

#include <fmt/format.h>

#include "base/statistics.h"
#include "profile/advice.h"
#include "profile/disturbance.h"
#include "profile/summary.h"

namespace redline::profile {
namespace {

constexpr std::size_t kMostLosses = 3;
constexpr double kLeastLoss = 1e-3;  // of the step: smaller ones are not worth a line

struct GapWords {
  Cause cause;
  const char* what;
};
GapWords words_of(GapCause cause, bool host_computes) {
  switch (cause) {
    case GapCause::input:
      return {Cause::input, "the device waits for data"};
    case GapCause::launch:
      return {Cause::launch, host_computes ? "nothing runs between one op and the next"
                                           : "the device waits for the next kernel to be launched"};
    case GapCause::communication:
      return {Cause::communication, "the device waits for the exchange of gradients"};
    case GapCause::host:
      return {Cause::host, "the device waits while the host does other work"};
  }
  return {Cause::host, ""};
}

// Kinds of ops that take longer than at the ceilings.
void add_ops(const Summary& summary, Facts facts, std::vector<Loss>& all) {
  for (const Part& part : summary.kinds) {
    if (part.least <= 0 || part.seconds <= part.least) continue;
    if (part.kind == graph::name_of(graph::OpKind::all_reduce))
      continue;  // it waits for others, not for memory
    facts.op = OpFacts{part.memory_bound, part.activations, part.count > 0 ? part.seconds / part.count : 0};
    all.push_back(
        {fmt::format("{} takes {}, {:.0f}% of what the {} allows", part.name, milliseconds(part.seconds),
                     100 * part.of_ceiling(), part.memory_bound ? "memory's speed" : "arithmetic"),
         part.seconds - part.least, advice(Cause::op, facts)});
  }
}

// Time that CPU threads lose.
void add_host(const Summary& summary, const Facts& facts, double steps, std::vector<Loss>& all) {
  if (summary.threads.size() < 2) return;
  const double share = mean(summary.threads);
  if (share < 1)
    all.push_back(
        {fmt::format("threads compute {:.0f}% of the time and wait for each other the rest", 100 * share),
         (1 - share) * summary.elapsed / steps, advice(Cause::threads, facts)});
}

// Time lost to a low clock: at most its distance from the highest.
void add_clock(const Summary& summary, const Facts& facts, double steps, std::vector<Loss>& all) {
  const TelemetrySummary& t = summary.telemetry;
  const double slower =
      t.sm_clock_mhz && t.max_sm_clock_mhz ? std::max(0.0, 1 - *t.sm_clock_mhz / *t.max_sm_clock_mhz) : 0.0;
  if (const std::string more = advice(Cause::power, facts); !more.empty())
    all.push_back({fmt::format("the power limit lowers the clock ({}), at most", power_text(t)),
                   slower * summary.busy / steps, more});
  if (t.faulted > kMuchFaulted)
    all.push_back({fmt::format("the clock is held down in {:.0f}% of the samples ({}), at most",
                               100 * t.faulted, throttle_text(t.throttle & kThrottleFault)),
                   slower * summary.busy / steps, advice(Cause::heat, facts)});
}

}  // namespace

void find_losses(Summary& summary, bool host_computes, const RunFacts& run) {
  const Facts facts{run, summary.telemetry, {}};
  const double steps = std::max<double>(1, static_cast<double>(summary.steps));
  std::vector<Loss> all;
  for (int i = 0; i < 4; ++i) {
    const GapWords words = words_of(static_cast<GapCause>(i), host_computes);
    if (summary.gap_seconds[i] > 0)
      all.push_back({words.what, summary.gap_seconds[i] / steps, advice(words.cause, facts)});
  }
  if (summary.exposed > 0)
    all.push_back({"the gradient exchange is not overlapped with computation", summary.exposed / steps,
                   advice(Cause::communication, facts)});
  if (summary.copies_exposed > 0)
    all.push_back({"copies between host and device are not overlapped with computation",
                   summary.copies_exposed / steps, advice(Cause::copies, facts)});
  if (const double lost = lost_to_neighbours(facts); host_computes && lost > 0) {
    // An op that waits for a processor looks slow, and so does a thread that waits for such an op.
    const CpuShares& cpu = *summary.telemetry.cpu;
    all.push_back({fmt::format("time of other processes, at most: they took {:.0f}% of the CPU time, so ops "
                               "and threads cannot be judged",
                               100 * (cpu.others + cpu.stolen)),
                   lost * summary.elapsed / steps, advice(Cause::neighbours, facts)});
  } else {
    add_ops(summary, facts, all);
    if (host_computes) add_host(summary, facts, steps, all);
  }
  add_clock(summary, facts, steps, all);
  if (power_bound(summary.telemetry))
    summary.bound = "the power limit sets the speed: " + power_text(summary.telemetry);
  std::erase_if(all, [&](const Loss& loss) { return loss.seconds < kLeastLoss * summary.elapsed / steps; });
  std::ranges::stable_sort(all, std::ranges::greater{}, &Loss::seconds);
  if (all.size() > kMostLosses) all.resize(kMostLosses);
  summary.losses = std::move(all);
}

}  // namespace redline::profile
