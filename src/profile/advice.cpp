#include "profile/advice.h"

#include <algorithm>

#include <fmt/format.h>

#include "profile/disturbance.h"

namespace redline::profile {
namespace {

using Advice = std::optional<std::string>;

// Below this, launch overhead is a large part of a kernel's time, and a larger batch costs little.
constexpr double kShortKernel = 20e-6;  // seconds

template <typename... Fact>
bool known(const Fact&... facts) {
  return (facts.has_value() && ...);
}

Advice when(bool premise, std::string text) { return premise ? Advice(std::move(text)) : std::nullopt; }

// The device waits for data.

Advice more_workers(const Facts& f) {
  const RunFacts& r = f.run;
  if (!known(r.gpu, r.synthetic, r.gpu_decodes, r.workers, r.cores)) return {};
  // If the CPU trains too, more workers slow it down.
  return when(*r.gpu && !*r.synthetic && *r.workers < *r.cores,
              fmt::format("more --workers: {} of {} cores read{}", *r.workers, *r.cores,
                          *r.gpu_decodes ? "" : " and decode"));
}

Advice decode_gpu(const Facts& f) {
  const RunFacts& r = f.run;
  if (!known(r.gpu, r.synthetic, r.gpu_decodes, r.gpu_could)) return {};
  return when(*r.gpu && !*r.synthetic && !*r.gpu_decodes && *r.gpu_could,
              "--decode gpu, which sends files instead of pixels");
}

Advice convert_to_shards(const Facts& f) {
  constexpr double kMuchReading = 0.2;  // with less, decoding is what takes the time
  const RunFacts& r = f.run;
  if (!known(r.synthetic, r.shards, r.reading)) return {};
  return when(
      !*r.synthetic && !*r.shards && *r.reading >= kMuchReading,
      fmt::format("`redline data convert` to shards, which are read in one piece: reading files takes "
                  "{:.0f}% of the workers' time",
                  100 * *r.reading));
}

Advice bench_data(const Facts& f) {
  if (!known(f.run.synthetic)) return {};
  return when(!*f.run.synthetic, "`redline bench data`, which shows whether reading or decoding is slow");
}

// The device waits for other things.

Advice larger_launches(const Facts& f) {
  if (!known(f.run.gpu)) return {};
  return when(*f.run.gpu, "a larger --batch-size, so that each launch does more work");
}

Advice exchange_less(const Facts& f) {
  if (!known(f.run.ranks)) return {};
  return when(*f.run.ranks > 1,
              "a larger --batch-size or --accumulate, so that gradients are exchanged less often");
}

Advice fewer_histograms(const Facts& f) {
  if (!known(f.run.histograms)) return {};
  return when(*f.run.histograms, "--histograms-every 0");
}

Advice fewer_lines(const Facts& f) {
  constexpr std::int64_t kSeldom = 10;
  if (!known(f.run.log_every)) return {};
  return when(*f.run.log_every < kSeldom, "a larger --log-every");
}

Advice own_cores(const Facts& f) {
  return when(lost_to_neighbours(f) > 0, "processors that no one else uses");
}

// Ops are far from the ceilings.

Advice narrower_type(const Facts& f) {
  if (!known(f.op, f.run.narrower)) return {};
  return when(*f.run.narrower && f.op->activations, f.op->memory_bound
                                                        ? "a narrower --dtype, which moves fewer bytes"
                                                        : "a narrower --dtype, whose arithmetic is faster");
}

Advice fuse(const Facts& f) {
  if (!known(f.op, f.run.fused)) return {};
  return when(!*f.run.fused && f.op->memory_bound, "to leave out --no-fuse: fused ops move their bytes once");
}

Advice any_kernel(const Facts& f) {
  if (!known(f.op, f.run.deterministic, f.run.gpu)) return {};
  return when(*f.run.deterministic && *f.run.gpu && f.op->activations,
              "to leave out --deterministic, which rules out some of the fastest kernels");
}

Advice longer_kernels(const Facts& f) {
  if (!known(f.op, f.run.gpu)) return {};
  // The work of an update depends on the weights alone.
  return when(*f.run.gpu && f.op->activations && f.op->kernel_seconds < kShortKernel,
              fmt::format("a larger --batch-size: a kernel takes {:.0f} us", 1e6 * f.op->kernel_seconds));
}

// CPU threads.

Advice divide_the_batch(const Facts& f) {
  const RunFacts& r = f.run;
  if (!known(r.batch, r.threads)) return {};
  return when(*r.threads > 1 && *r.batch % *r.threads != 0,
              fmt::format("a --batch-size that is a multiple of the {} threads", *r.threads));
}

Advice quiet_machine(const Facts& f) {
  return when(lost_to_neighbours(f) > 0,
              "to measure again on a quiet machine, or on processors that no one else uses");
}

// Clocks.

Advice raise_power_limit(const Facts& f) {
  if (!known(f.telemetry) || !known(f.telemetry->power_limit_w, f.telemetry->max_power_limit_w)) return {};
  const TelemetrySummary& t = *f.telemetry;
  return when(power_bound(t) && *t.power_limit_w < *t.max_power_limit_w - 1,
              fmt::format("a higher power limit: the GPU can be set to {:.0f} W (`nvidia-smi -pl`, as root)",
                          *t.max_power_limit_w));
}

Advice cool(const Facts& f) {
  constexpr std::uint64_t kThermal = 32 | 64;
  if (!known(f.telemetry)) return {};
  return when(f.telemetry->faulted > kMuchFaulted && (f.telemetry->throttle & kThermal) != 0, "more cooling");
}

Advice power_supply(const Facts& f) {
  constexpr std::uint64_t kThermal = 32 | 64, kBrake = 128;
  if (!known(f.telemetry)) return {};
  const std::uint64_t reasons = f.telemetry->throttle;
  return when(f.telemetry->faulted > kMuchFaulted && (reasons & kBrake) != 0 && (reasons & kThermal) == 0,
              "to check the machine's power supply, which made the GPU slow down");
}

}  // namespace

const std::vector<Rule>& rules() {
  static const std::vector<Rule> all = {
      {"more_workers", Cause::input, more_workers},
      {"decode_gpu", Cause::input, decode_gpu},
      {"convert_to_shards", Cause::input, convert_to_shards},
      {"bench_data", Cause::input, bench_data},
      {"larger_launches", Cause::launch, larger_launches},
      {"exchange_less", Cause::communication, exchange_less},
      {"fewer_histograms", Cause::host, fewer_histograms},
      {"fewer_lines", Cause::host, fewer_lines},
      {"own_cores", Cause::host, own_cores},
      {"narrower_type", Cause::op, narrower_type},
      {"fuse", Cause::op, fuse},
      {"any_kernel", Cause::op, any_kernel},
      {"longer_kernels", Cause::op, longer_kernels},
      {"send_files", Cause::copies, decode_gpu},
      {"divide_the_batch", Cause::threads, divide_the_batch},
      {"quiet_machine", Cause::neighbours, quiet_machine},
      {"raise_power_limit", Cause::power, raise_power_limit},
      {"cool", Cause::heat, cool},
      {"power_supply", Cause::heat, power_supply},
  };
  return all;
}

double lost_to_neighbours(const Facts& f) {
  const RunFacts& r = f.run;
  if (!known(f.telemetry, r.ranks) || *r.ranks != 1 || !cpu_disturbed(*f.telemetry)) return 0;
  double wanted = 1;  // of the CPU time
  if (known(r.threads, r.workers, r.cores) && *r.threads > 0 && *r.cores > 0)
    wanted = std::min(1.0, static_cast<double>(*r.threads + *r.workers) / static_cast<double>(*r.cores));
  const double taken = f.telemetry->cpu->others + f.telemetry->cpu->stolen;
  return std::max(0.0, taken - (1 - wanted)) / wanted;
}

std::string advice(Cause cause, const Facts& facts) {
  std::string text;
  for (const Rule& rule : rules()) {
    if (rule.cause != cause) continue;
    if (const Advice said = rule.advise(facts)) text += (text.empty() ? "" : "; ") + *said;
  }
  return text;
}

}  // namespace redline::profile
