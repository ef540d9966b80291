#include "train/memory.h"

#include <algorithm>
#include <cstddef>

#include "base/text.h"
#include "train/interval.h"

namespace redline::train {
namespace {

bool fits_into(const Memory& need, const Memory& available) {
  const auto fits = [](std::uint64_t wanted, std::uint64_t there) { return there == 0 || wanted <= there; };
  return fits(need.host, available.host) && fits(need.device, available.device);
}

// Largest batch below the configured one whose plans fit; 0 when not even one image does.
std::int64_t largest_batch(const Config& config, const backend::Backend& backend, graph::DType dtype,
                           std::int64_t classes, const Memory& available, const Decoding& decoding) {
  std::int64_t fits = 0, too_large = config.optimizer.batch_size;
  while (fits + 1 < too_large) {
    const std::int64_t middle = fits + (too_large - fits) / 2;
    const bool ok =
        fits_into(memory_need(config, make_plans(config, backend, dtype, classes, middle), backend, decoding),
                  available);
    (ok ? fits : too_large) = middle;
  }
  return fits;
}

}  // namespace

Memory memory_need(const Config& config, const Plans& plans, const backend::Backend& backend,
                   const Decoding& decoding) {
  const plan::MemoryUse train = plan::memory_use(*plans.train), eval = plan::memory_use(*plans.eval);
  const std::size_t slots = kBatchSlots * (train.inputs + eval.inputs);
  // They run in turn: activations need the memory of the largest.
  std::size_t work = train.total() - train.activations + std::max(train.activations, eval.activations) +
                     eval.inputs + backend.memory_overhead(*plans.train, /*owns_weights=*/true) +
                     backend.memory_overhead(*plans.eval, /*owns_weights=*/false);
  for (const auto& plan : plans.smaller)
    work += plan::memory_use(*plan).inputs + backend.memory_overhead(*plan, /*owns_weights=*/false);
  work += decoding.memory_need(*plans.train);
  const bool checkpoints =
      parse_interval(checkpoint_interval(config), "--checkpoint-every").unit != Interval::Unit::never;
  const std::size_t host =
      slots + (checkpoints ? train.parameters + train.statistics + train.optimizer + train.average : 0);
  return backend.device_memory() ? Memory{host, work} : Memory{host + work, 0};
}

Memory memory_available(const Machine& machine, const backend::Backend& backend) {
  const auto device = backend.device_memory();
  return {machine.memory_available, device ? device->free : 0};
}

void refuse_batch(const Config& config, const backend::Backend& backend, graph::DType dtype,
                  std::int64_t classes, const Memory& available, const Decoding& decoding,
                  const std::string& problem) {
  const std::int64_t fits = largest_batch(config, backend, dtype, classes, available, decoding);
  if (fits == 0)
    throw BatchTooLarge("{}: not even one image fits; try a smaller --image-size or --model", problem);
  const bool may_recompute = config.device.recompute != "blocks" && !config.device.no_fuse;
  throw BatchTooLarge("{}: the largest batch that fits is {} (--accumulate makes a step of several{})",
                      problem, fits, may_recompute ? ", --recompute blocks needs less memory" : "");
}

void check_memory(const Config& config, const backend::Backend& backend, graph::DType dtype,
                  std::int64_t classes, const Plans& plans, const Memory& available,
                  const Decoding& decoding) {
  const Memory need = memory_need(config, plans, backend, decoding);
  if (fits_into(need, available)) return;
  const bool on_device = available.device != 0 && need.device > available.device;
  refuse_batch(
      config, backend, dtype, classes, available, decoding,
      fmt::format("--batch-size {} needs {} of {}memory, but {} is available", config.optimizer.batch_size,
                  format_bytes(on_device ? need.device : need.host), on_device ? "device " : "",
                  format_bytes(on_device ? available.device : available.host)));
}

}  // namespace redline::train
