#include "block.h"

#include <sys/mman.h>

#include <algorithm>
#include <bitset>
#include <exception>
#include <mutex>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "device.h"

// Saves the registers that a call keeps on the stack, and goes on where another stack was left.
extern "C" void redline_emulator_switch(void** from, void* to);
asm(R"(
.text
.globl redline_emulator_switch
.type redline_emulator_switch, @function
redline_emulator_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
)");

namespace redline::emulator {
namespace {

constexpr int kMostThreads = 1024;
constexpr unsigned kSeldom = 16, kLongest = 100;  // pauses of warps: one in so many turns, of so many rounds
constexpr std::size_t kStack = std::size_t{256} << 10, kGuard = 4096;

// All stacks, each with a page below it that may not be touched.
std::byte* stacks() {
  static std::byte* const memory = [] {
    void* all = mmap(nullptr, kMostThreads * kStack, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    check(all != MAP_FAILED, "no memory for the threads of a block");
    auto* bytes = static_cast<std::byte*>(all);
    for (int i = 0; i < kMostThreads; ++i)
      mprotect(bytes + static_cast<std::size_t>(i) * kStack, kGuard, PROT_NONE);
    return bytes;
  }();
  return memory;
}

// Threads that do something together: those of a warp, or of a warp group.
struct Party {
  int live = 0, arrived = 0;
  unsigned generation = 0;
  std::vector<void*> given;
};

struct Barrier {
  int arrived = 0;
  unsigned generation = 0;
};

struct Thread {
  void* stack = nullptr;  // where it was left
  uint3 index{};
  int number = 0;
  bool ended = false;
  bool moved = false;  // since it was last resumed
  const char* waits = "";
};

// What threads touched of dynamic shared memory since their last fence, in chunks of sixteen bytes: TMA moves
// whole ones.
class Touched {
 public:
  void add(int thread, std::size_t chunk) {
    Own& own = of_threads_[static_cast<std::size_t>(thread)];
    if (own.has[chunk]) return;
    own.has.set(chunk);
    own.chunks.push_back(chunk);
    ++counts_[chunk];
  }
  void forget(int thread) {
    Own& own = of_threads_[static_cast<std::size_t>(thread)];
    for (const std::size_t chunk : own.chunks) {
      own.has.reset(chunk);
      --counts_[chunk];
    }
    own.chunks.clear();
  }
  bool any(std::size_t chunk) const { return counts_[chunk] > 0; }
  std::ptrdiff_t thread_of(std::size_t chunk) const {
    return std::ranges::find_if(of_threads_, [&](const Own& own) { return own.has[chunk]; }) -
           of_threads_.begin();
  }

 private:
  static constexpr std::size_t kChunks = kSharedBytes / kChunk;
  struct Own {
    std::bitset<kChunks> has;
    std::vector<std::size_t> chunks;
  };
  std::vector<Own> of_threads_ = std::vector<Own>(kMostThreads);
  std::vector<int> counts_ = std::vector<int>(kChunks);  // threads, by chunk
};

struct Block {
  const std::function<void()>* body = nullptr;
  std::vector<Thread> threads;
  std::vector<Party> warps, groups;
  Barrier barriers[16];
  int live = 0;
  Thread* current = nullptr;
  void* scheduler = nullptr;  // its stack
  std::exception_ptr error;
  Touched read, written;
};

Block& block = *new Block;  // the device may be at work when the process ends

Party& party_of(std::vector<Party>& parties, int size) {
  return parties[static_cast<std::size_t>(block.current->number / size)];
}
std::vector<Party> make_parties(int threads, int size) {
  std::vector<Party> parties;
  for (int first = 0; first < threads; first += size)
    parties.push_back(
        {std::min(size, threads - first), 0, 0, std::vector<void*>(static_cast<std::size_t>(size))});
  return parties;
}

void leave() { redline_emulator_switch(&block.current->stack, block.scheduler); }

void release(Barrier& barrier) {
  barrier.arrived = 0;
  ++barrier.generation;
}

void run_thread() {
  try {
    (*block.body)();
  } catch (...) {  // what a check found; the scheduler passes it on
    block.error = std::current_exception();
  }
  Thread& own = *block.current;
  own.ended = own.moved = true;
  --block.live;
  fence();  // nothing of it is under way any more
  --party_of(block.warps, kWarp).live;
  --party_of(block.groups, kWarpGroup).live;
  // Those that wait for the whole block wait for one less.
  Barrier& whole = block.barriers[0];
  if (block.live > 0 && whole.arrived == block.live) release(whole);
  leave();
}

// A stack on which redline_emulator_switch finds six registers and where to go.
void* fresh_stack(int number) {
  auto* top = reinterpret_cast<void**>(stacks() + static_cast<std::size_t>(number + 1) * kStack);
  *--top = nullptr;  // a call leaves the stack eight bytes off a multiple of sixteen
  *--top = reinterpret_cast<void*>(&run_thread);
  for (int i = 0; i < 6; ++i) *--top = nullptr;
  return top;
}

[[noreturn]] void explain_hang() {
  std::vector<std::pair<std::string, int>> causes;
  for (const Thread& thread : block.threads) {
    if (thread.ended) continue;
    if (causes.empty() || causes.back().first != thread.waits)
      causes.emplace_back(thread.waits, thread.number);
  }
  std::string text;
  for (const auto& [cause, first] : causes) text += fmt::format(" from thread {} on {};", first, cause);
  throw InternalError("block ({}, {}, {}) hangs: waiting,{}", blockIdx.x, blockIdx.y, blockIdx.z, text);
}

void run_block(const Grid& grid, std::mt19937& random) {
  const auto count = static_cast<int>(grid.threads.x * grid.threads.y * grid.threads.z);
  block.threads.assign(static_cast<std::size_t>(count), {});
  block.warps = make_parties(count, kWarp);
  block.groups = make_parties(count, kWarpGroup);
  for (Barrier& barrier : block.barriers) barrier = {};
  block.live = count;
  for (int i = 0; i < kMostThreads; ++i) {  // left by a block that failed
    block.read.forget(i);
    block.written.forget(i);
  }
  for (int i = 0; i < count; ++i) {
    Thread& thread = block.threads[static_cast<std::size_t>(i)];
    const auto at = static_cast<unsigned>(i);
    thread.index = {at % grid.threads.x, at / grid.threads.x % grid.threads.y,
                    at / grid.threads.x / grid.threads.y};
    thread.number = i;
    thread.stack = fresh_stack(i);
  }
  std::vector<std::size_t> order(block.warps.size());
  std::vector<unsigned> pauses(order.size());  // rounds that a warp stays away: some fall far behind others
  std::iota(order.begin(), order.end(), std::size_t{0});
  while (block.live > 0) {
    std::ranges::shuffle(order, random);
    bool moved = false;
    for (const std::size_t warp : order) {
      if (pauses[warp] > 0) {
        --pauses[warp];
        moved = true;
        continue;
      }
      if (random() % kSeldom == 0) pauses[warp] = random() % kLongest;
      const std::size_t end = std::min(block.threads.size(), (warp + 1) * kWarp);
      for (std::size_t i = warp * kWarp; i < end; ++i) {
        Thread& thread = block.threads[i];
        if (thread.ended) continue;
        thread.moved = false;
        block.current = &thread;
        threadIdx = thread.index;
        redline_emulator_switch(&block.scheduler, thread.stack);
        if (block.error) std::rethrow_exception(std::exchange(block.error, nullptr));
        moved = moved || thread.moved;
      }
    }
    if (!moved) explain_hang();
  }
}

}  // namespace

void run_grid(const Grid& grid, const std::function<void()>& thread) {
  static std::mutex one;
  const std::lock_guard lock(one);
  check(grid.threads.x * grid.threads.y * grid.threads.z <= kMostThreads, "a block has too many threads");
  check(grid.shared_bytes <= kSharedBytes - 1024, "a block asks for {} bytes of shared memory",
        grid.shared_bytes);
  std::mt19937 random(1);
  block.body = &thread;
  gridDim = grid.blocks;
  blockDim = grid.threads;
  for (unsigned z = 0; z < grid.blocks.z; ++z) {
    for (unsigned y = 0; y < grid.blocks.y; ++y) {
      for (unsigned x = 0; x < grid.blocks.x; ++x) {
        blockIdx = {x, y, z};
        run_block(grid, random);
      }
    }
  }
}

int lane() { return block.current->number % kWarp; }

void wait_for(const char* what, const std::function<bool()>& ready) {
  Thread& own = *block.current;
  own.waits = what;
  while (!ready()) leave();
  own.moved = true;
}

void arrive_at(int name, int count) {
  Barrier& barrier = block.barriers[name];
  if (++barrier.arrived == (count == 0 ? block.live : count)) release(barrier);
}

void sync_at(int name, int count) {
  const Barrier& barrier = block.barriers[name];
  const unsigned generation = barrier.generation;
  arrive_at(name, count);
  wait_for(count == 0 ? "for all threads of the block" : "at a named barrier",
           [&] { return barrier.generation != generation; });
}

static void together(Party& party, std::size_t place, void* own, const Together& work) {
  party.given[place] = own;
  if (++party.arrived == party.live) {
    work(party.given);
    party.arrived = 0;
    std::ranges::fill(party.given, nullptr);
    ++party.generation;
    block.current->moved = true;
    return;
  }
  wait_for("for its warp",
           [&party, generation = party.generation] { return party.generation != generation; });
}
void by_warp(void* own, const Together& work) {
  together(party_of(block.warps, kWarp), static_cast<std::size_t>(lane()), own, work);
}
void by_warp_group(void* own, const Together& work) {
  together(party_of(block.groups, kWarpGroup), static_cast<std::size_t>(block.current->number % kWarpGroup),
           own, work);
}

std::byte* dynamic_shared() {
  alignas(kSharedBytes) static std::byte memory[kSharedBytes];
  return memory;
}

namespace {

// Calls visit(chunk) for what lies in dynamic shared memory.
template <typename Visit>
void for_chunks(const void* at, std::size_t bytes, const Visit& visit) {
  const auto begin = static_cast<std::size_t>(static_cast<const std::byte*>(at) - dynamic_shared());
  if (begin >= kSharedBytes) return;
  for (std::size_t chunk = begin / kChunk; chunk * kChunk < std::min(begin + bytes, kSharedBytes); ++chunk)
    visit(chunk);
}

}  // namespace

void touch(const void* at, std::size_t bytes, bool writes) {
  Touched& touched = writes ? block.written : block.read;
  for_chunks(at, bytes, [&](std::size_t chunk) { touched.add(block.current->number, chunk); });
}
void fence() {
  block.read.forget(block.current->number);
  block.written.forget(block.current->number);
}
void check_fenced(const void* at, std::size_t bytes, Access access) {
  for_chunks(at, bytes, [&](std::size_t chunk) {
    const bool writes = access == Access::tma_writes;
    for (const Touched* touched : {&block.written, &block.read}) {
      if (!touched->any(chunk) || (touched == &block.read && !writes)) continue;
      throw InternalError("{} shared memory that thread {} has {} without a fence since",
                          writes                        ? "TMA writes"
                          : access == Access::tma_reads ? "TMA reads"
                                                        : "wgmma reads",
                          touched->thread_of(chunk), touched == &block.written ? "written" : "read");
    }
  });
}

std::uint32_t shared_address(const void* pointer) {
  const auto offset = static_cast<const std::byte*>(pointer) - dynamic_shared();
  check(offset >= 0 && offset < static_cast<std::ptrdiff_t>(kSharedBytes),
        "an address outside dynamic shared memory");
  return static_cast<std::uint32_t>(offset);
}
std::byte* shared_pointer(std::uint32_t address) { return dynamic_shared() + address % kSharedBytes; }

}  // namespace redline::emulator

// GCC calls these at every load and store of a kernel's own source (-fsanitize=kernel-address, see
// CMakeLists.txt).
extern "C" {
#define REDLINE_EMULATOR_ACCESSES(BYTES)                                                            \
  void __asan_load##BYTES##_noabort(const void* at) { redline::emulator::touch(at, BYTES, false); } \
  void __asan_store##BYTES##_noabort(const void* at) { redline::emulator::touch(at, BYTES, true); }
REDLINE_EMULATOR_ACCESSES(1)
REDLINE_EMULATOR_ACCESSES(2)
REDLINE_EMULATOR_ACCESSES(4)
REDLINE_EMULATOR_ACCESSES(8)
REDLINE_EMULATOR_ACCESSES(16)
void __asan_loadN_noabort(const void* at, std::size_t bytes) { redline::emulator::touch(at, bytes, false); }
void __asan_storeN_noabort(const void* at, std::size_t bytes) { redline::emulator::touch(at, bytes, true); }
void __asan_handle_no_return() {}
void __asan_before_dynamic_init(const char*) {}
void __asan_after_dynamic_init() {}
}
