// Kernels that only move bytes, in the orders that `redline bench memory` compares, and kernels that check
// the result.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

namespace redline::backend::cuda {

// Enough blocks to saturate the bus; more would only take multiprocessors from other kernels.
inline constexpr int kBusBlocks = 32;

// Copies bytes between two memories that kernels can access, sixteen at a time if both addresses allow it.
void copy_bytes(void* to, const void* from, std::size_t bytes, int blocks, cudaStream_t stream);

enum class AccessKind {
  driver,  // cudaMemcpyAsync
  copy4,   // neighbours read and write neighbouring words, of 4, 8 and 16 bytes each
  copy8,
  copy16,
  strided,         // neighbours read words that are `stride` apart
  strided_staged,  // the same order, through shared memory, so that all accesses are to neighbours
  random,          // neighbours read words from anywhere
  staged,          // through shared memory
  async_copy,      // from memory to shared memory without registers (cp.async), several ahead
  bulk,            // by TMA, in and out (cp.async.bulk), several ahead; Hopper
  read,            // reads and adds up
  write,
};

struct Access {
  AccessKind kind = AccessKind::copy16;
  int stride = 1;
};

// `bytes` is a multiple of 4096; `sum` is added to by `read`.
void launch_access(const Access& access, void* to, const void* from, std::size_t bytes,
                   unsigned long long* sum, cudaStream_t stream);

// Writes memory_word(i) to every word.
void fill_words(void* to, std::size_t bytes, cudaStream_t stream);
// Adds to `wrong` the number of words that differ from what the access should leave (read: its source).
void count_wrong(const Access& access, const void* words, std::size_t bytes, unsigned long long* wrong,
                 cudaStream_t stream);

}  // namespace redline::backend::cuda
