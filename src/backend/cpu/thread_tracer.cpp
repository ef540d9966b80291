#include "backend/cpu/thread_tracer.h"

#include <link.h>
#include <signal.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>

#include "base/error.h"

namespace redline::backend::cpu {
namespace {

constexpr std::size_t kMostSamples = 1 << 20;
constexpr long kPeriodNs = 1'000'000;

// A signal's handler has no other way to its tracer.
std::atomic<ThreadTracer*> g_tracer = nullptr;

void on_signal(int, siginfo_t* info, void* context) {
  const int error = errno;
  ThreadTracer* tracer = g_tracer.load(std::memory_order_acquire);
#if defined(__x86_64__)
  const auto* machine = &static_cast<const ucontext_t*>(context)->uc_mcontext;
  if (tracer != nullptr && info->si_code == SI_TIMER)
    tracer->sample(static_cast<std::uint32_t>(info->si_value.sival_int),
                   static_cast<std::uintptr_t>(machine->gregs[REG_RIP]));
#else
  static_cast<void>(info);
  static_cast<void>(context);
#endif
  errno = error;
}

// Gives the calling thread a stack for the handler. JIT-compiled kernels use the stack pointer as one more
// register: a signal's frame at that address would overwrite the heap.
void use_signal_stack() {
  class SignalStack {
   public:
    SignalStack() {
      stack_t now{};
      if (sigaltstack(nullptr, &now) != 0 || (now.ss_flags & SS_DISABLE) == 0) return;  // it has one
      const std::size_t bytes =
          std::max<std::size_t>(1 << 16, static_cast<std::size_t>(std::max(0L, ::sysconf(_SC_SIGSTKSZ))));
      memory_ = std::make_unique<std::byte[]>(bytes);
      stack_t stack{};
      stack.ss_sp = memory_.get();
      stack.ss_size = bytes;
      sigaltstack(&stack, nullptr);
    }
    ~SignalStack() {
      if (!memory_) return;
      stack_t none{};
      none.ss_flags = SS_DISABLE;
      sigaltstack(&none, nullptr);
    }
    SignalStack(const SignalStack&) = delete;
    SignalStack& operator=(const SignalStack&) = delete;

   private:
    std::unique_ptr<std::byte[]> memory_;
  };
  thread_local const SignalStack stack;
  static_cast<void>(stack);
}

// The address range of a library's code; 0, 0 if it is not loaded.
std::pair<std::uintptr_t, std::uintptr_t> code_of(std::string_view library) {
  struct Search {
    std::string_view name;
    std::uintptr_t begin = 0, end = 0;
  } search{library};
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* data) {
        auto& wanted = *static_cast<Search*>(data);
        if (std::string_view(info->dlpi_name).find(wanted.name) == std::string_view::npos) return 0;
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          const auto& part = info->dlpi_phdr[i];
          if (part.p_type != PT_LOAD || (part.p_flags & PF_X) == 0) continue;
          wanted.begin = info->dlpi_addr + part.p_vaddr;
          wanted.end = wanted.begin + part.p_memsz;
        }
        return 1;
      },
      &search);
  return {search.begin, search.end};
}

}  // namespace

ThreadTracer::ThreadTracer(const Threads& threads) : threads_(threads) {
#if !defined(__x86_64__)
  throw UnavailableError("threads are sampled on x86-64 only");
#endif
  std::tie(waiting_begin_, waiting_end_) = code_of("libgomp");
  if (waiting_end_ == 0) throw UnavailableError("threads are not sampled: this is not GNU's OpenMP");
  ThreadTracer* none = nullptr;
  check(g_tracer.compare_exchange_strong(none, this), "two tracers at once");
}

ThreadTracer::~ThreadTracer() {
  stop();
  g_tracer = nullptr;
}

void ThreadTracer::start() {
  // The handler stays for good: a late signal would end a process that has none.
  struct sigaction action {};
  action.sa_sigaction = on_signal;
  action.sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  if (sigaction(SIGPROF, &action, nullptr) != 0) return;
  samples_.resize(kMostSamples);
  std::vector<pid_t> ids(static_cast<std::size_t>(threads_.count()));
  {
    const Threads::Lead lead(threads_);
    parallel_for(threads_.count(), [&ids](std::int64_t thread) {
      use_signal_stack();
      ids[static_cast<std::size_t>(thread)] = static_cast<pid_t>(::syscall(SYS_gettid));
    });
  }
  for (std::size_t i = 0; i < ids.size(); ++i) {
    sigevent event{};
    event.sigev_notify = SIGEV_THREAD_ID;
    event.sigev_signo = SIGPROF;
    event.sigev_value.sival_int = static_cast<int>(i);
    event._sigev_un._tid = ids[i];
    timer_t timer{};
    if (timer_create(CLOCK_MONOTONIC, &event, &timer) != 0) continue;
    timers_.push_back(timer);
    const itimerspec every{{0, kPeriodNs}, {0, kPeriodNs}};
    timer_settime(timer, 0, &every, nullptr);
  }
}

void ThreadTracer::stop() {
  for (const timer_t timer : timers_) timer_delete(timer);
  timers_.clear();
}

void ThreadTracer::sample(std::uint32_t thread, std::uintptr_t address) noexcept {
  const std::size_t at = used_.fetch_add(1, std::memory_order_relaxed);
  if (at >= samples_.size()) {
    dropped_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  samples_[at] = {std::int64_t{1'000'000'000} * now.tv_sec + now.tv_nsec, thread,
                  address < waiting_begin_ || address >= waiting_end_};
}

std::size_t ThreadTracer::count() const { return std::min(used_.load(), samples_.size()); }

std::vector<Activity> ThreadTracer::take() {
  std::vector<Activity> records;
  for (std::size_t i = 0; i < count(); ++i) {
    Activity record;
    record.kind = samples_[i].busy ? Activity::Kind::busy : Activity::Kind::waiting;
    record.name = samples_[i].busy ? &busy_ : &waiting_;
    record.begin = record.end = samples_[i].time;
    record.stream = samples_[i].thread;
    if (record.begin != 0) records.push_back(record);
  }
  used_ = 0;
  return records;
}

}  // namespace redline::backend::cpu
