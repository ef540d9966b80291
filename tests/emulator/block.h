// Runs the threads of CUDA blocks on the CPU: each thread is a fiber with a stack of its own, which runs
// until it has to wait. Blocks run one after the other. Warps take turns in a random order that is the same
// every time, so a kernel that leaves out a barrier is likely to be found. When every thread of a block
// waits, the run ends with an InternalError that says what for: a hang on a GPU.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

namespace redline::emulator {

inline constexpr int kWarp = 32, kWarpGroup = 128;  // threads

struct Grid {
  dim3 blocks, threads;
  std::size_t shared_bytes = 0;
};

// Calls `thread` once for every thread of the grid. One grid runs at a time, whatever thread calls this.
void run_grid(const Grid& grid, const std::function<void()>& thread);

// --- For the thread that runs ---

int lane();
// Lets others run until ready() is true. `what` says for whom a hang is explained.
void wait_for(const char* what, const std::function<bool()>& ready);
// Waits for `count` threads at barrier `name` (0 to 15), itself included; those of the whole block if 0.
void sync_at(int name, int count);
void arrive_at(int name, int count);  // counts, and does not wait

// Every thread of the warp that has not ended gives `own`. When all have, work() is called once with what
// each gave (null for one that has ended), and all go on.
using Together = std::function<void(std::span<void* const> given)>;
void by_warp(void* own, const Together& work);
// The same for the four warps of a group, which multiply together.
void by_warp_group(void* own, const Together& work);

// Dynamic shared memory of the block: aligned to its size, so that the low bits of a pointer are an address
// as kernels compute with.
inline constexpr std::size_t kSharedBytes = std::size_t{1} << 18, kChunk = 16;
std::byte* dynamic_shared();
// The low bits of a pointer to dynamic shared memory, and back.
std::uint32_t shared_address(const void* pointer);
std::byte* shared_pointer(std::uint32_t address);

// What a thread itself reads or writes of dynamic shared memory is not ordered with TMA and wgmma before it
// has passed a fence. touch() notes it: the compiler has every load and store call it, and emulated
// instructions do. check_fenced() throws InternalError if a thread has not passed a fence since: where TMA
// writes any touch counts, else only writes.
enum class Access : std::uint8_t { tma_writes, tma_reads, wgmma_reads };
void touch(const void* at, std::size_t bytes, bool writes);
void fence();
void check_fenced(const void* at, std::size_t bytes, Access access);

}  // namespace redline::emulator
