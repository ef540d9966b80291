// Whether a run fits into memory, and the largest batch that would.
#pragma once

#include <cstdint>
#include <string>

#include "backend/backend.h"
#include "base/error.h"
#include "base/machine.h"
#include "train/batches.h"
#include "train/config.h"
#include "train/plans.h"

namespace redline::train {

// Bytes on the host, and on a device with its own memory; 0: none, or unknown.
struct Memory {
  std::uint64_t host = 0, device = 0;
};

// The memory that a run needs: weights and activations, counted once for all plans, scratch of kernels, the
// loader's batches and decoder, and the copy that checkpoints are written from.
Memory memory_need(const Config& config, const Plans& plans, const backend::Backend& backend,
                   const Decoding& decoding = {});
// The memory that is free now.
Memory memory_available(const Machine& machine, const backend::Backend& backend);

// A batch larger than memory. Its own type, so that a search for the largest batch can catch it.
class BatchTooLarge : public UsageError {
 public:
  using UsageError::UsageError;
};

// Throws BatchTooLarge when the run needs more than is `available`, naming both and the largest --batch-size
// that fits.
void check_memory(const Config& config, const backend::Backend& backend, graph::DType dtype,
                  std::int64_t classes, const Plans& plans, const Memory& available,
                  const Decoding& decoding = {});

// Throws BatchTooLarge with `problem` and the largest --batch-size that fits into what is `available`.
[[noreturn]] void refuse_batch(const Config& config, const backend::Backend& backend, graph::DType dtype,
                               std::int64_t classes, const Memory& available, const Decoding& decoding,
                               const std::string& problem);

}  // namespace redline::train
