#include "base/stacks.h"

#include <cxxabi.h>
#include <dirent.h>
#include <elf.h>
#include <execinfo.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/ranges.h>

namespace redline {
namespace {

constexpr int kFrames = 48;
constexpr std::size_t kLongestName = 160;
#ifdef __SANITIZE_THREAD__
constexpr std::chrono::milliseconds kAnswerTime{20};  // it puts signals off: few threads answer
#else
constexpr std::chrono::milliseconds kAnswerTime{1'000};
#endif

int signal_number() { return SIGRTMAX - 3; }

struct Slot {
  pid_t thread = 0;
  std::atomic<int> count = -1;  // of frames; -1: no answer yet
  std::array<void*, kFrames> frames{};
};

// The current requests. A thread may answer after the wait is over, so requests are never freed.
struct Question {
  std::size_t size = 0;
  std::unique_ptr<Slot[]> slots;
};
std::atomic<const Question*> asked = nullptr;

void answer(int) {
  const int error = errno;
  const Question* question = asked.load(std::memory_order_acquire);
  const auto self = static_cast<pid_t>(::syscall(SYS_gettid));
  for (std::size_t i = 0; question != nullptr && i < question->size; ++i) {
    Slot& slot = question->slots[i];
    if (slot.thread != self || slot.count.load(std::memory_order_relaxed) >= 0) continue;
    slot.count.store(::backtrace(slot.frames.data(), kFrames), std::memory_order_release);
  }
  errno = error;
}

std::vector<pid_t> threads() {
  std::vector<pid_t> all;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir("/proc/self/task"), ::closedir);
  while (folder) {
    const dirent* entry = ::readdir(folder.get());
    if (entry == nullptr) break;
    if (const pid_t thread = std::atoi(entry->d_name); thread > 0) all.push_back(thread);
  }
  std::ranges::sort(all);
  return all;
}

std::string line_of(pid_t thread, const char* file) {
  std::ifstream in(fmt::format("/proc/self/task/{}/{}", thread, file));
  std::string line;
  std::getline(in, line);
  return line;
}

// The functions of a file that is loaded, from its symbols.
class Functions {
 public:
  explicit Functions(const std::string& path) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    struct stat status {};
    if (fd >= 0 && ::fstat(fd, &status) == 0 && status.st_size > 0) {
      const auto size = static_cast<std::size_t>(status.st_size);
      void* bytes = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
      if (bytes != MAP_FAILED) {
        read({static_cast<const char*>(bytes), size});
        ::munmap(bytes, size);
      }
    }
    if (fd >= 0) ::close(fd);
  }

  std::optional<std::string> at(std::uint64_t address) const {
    auto next = std::ranges::upper_bound(all_, address, {}, &Function::begin);
    if (next == all_.begin() || address >= (--next)->end) return {};
    return next->name;
  }

 private:
  struct Function {
    std::uint64_t begin = 0, end = 0;
    std::string name;
  };

  // Empty for addresses outside the file.
  template <typename T>
  static std::span<const T> part(std::span<const char> file, std::uint64_t at, std::uint64_t bytes) {
    if (at > file.size() || bytes > file.size() - at || at % alignof(T) != 0) return {};
    return {reinterpret_cast<const T*>(file.data() + at), bytes / sizeof(T)};
  }

  void read(std::span<const char> file) {
    const auto header = part<ElfW(Ehdr)>(file, 0, sizeof(ElfW(Ehdr)));
    if (header.empty() || std::memcmp(header[0].e_ident, ELFMAG, SELFMAG) != 0) return;
    const auto sections =
        part<ElfW(Shdr)>(file, header[0].e_shoff, std::uint64_t{header[0].e_shnum} * sizeof(ElfW(Shdr)));
    // All functions, and where those were stripped the ones that others may call.
    for (const auto kind : {SHT_SYMTAB, SHT_DYNSYM})
      for (const auto& section : sections)
        if (section.sh_type == static_cast<unsigned>(kind) && all_.empty() &&
            section.sh_link < sections.size())
          read(part<ElfW(Sym)>(file, section.sh_offset, section.sh_size),
               part<char>(file, sections[section.sh_link].sh_offset, sections[section.sh_link].sh_size));
    std::ranges::sort(all_, {}, &Function::begin);
  }

  void read(std::span<const ElfW(Sym)> symbols, std::span<const char> names) {
    for (const auto& symbol : symbols) {
      const int type = symbol.st_info & 0xf;
      if ((type != STT_FUNC && type != STT_GNU_IFUNC) || symbol.st_size == 0 ||
          symbol.st_name >= names.size())
        continue;
      const char* name = names.data() + symbol.st_name;
      all_.push_back({symbol.st_value, symbol.st_value + symbol.st_size,
                      std::string(name, ::strnlen(name, names.size() - symbol.st_name))});
    }
  }

  std::vector<Function> all_;
};

struct Module {
  std::string name, path;
  std::uint64_t base = 0;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> parts;  // of memory
  std::unique_ptr<Functions> functions;                        // once they are asked for
};

std::vector<Module> loaded_modules() {
  std::vector<Module> all;
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* to) {
        Module module;
        const std::string path = info->dlpi_name;
        module.path = path.empty() ? "/proc/self/exe" : path;
        module.name = path.empty() ? "redline" : path.substr(path.rfind('/') + 1);
        module.base = info->dlpi_addr;
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          const auto& part = info->dlpi_phdr[i];
          if (part.p_type == PT_LOAD)
            module.parts.emplace_back(module.base + part.p_vaddr, module.base + part.p_vaddr + part.p_memsz);
        }
        static_cast<std::vector<Module>*>(to)->push_back(std::move(module));
        return 0;
      },
      &all);
  return all;
}

std::string readable(const std::string& name) {
  std::string result = demangled(name.c_str());
  // Without the types of its arguments.
  if (const std::size_t last = result.rfind(')'); result != name && last != std::string::npos) {
    int depth = 0;
    std::size_t at = last;
    do {
      depth += result[at] == ')' ? 1 : result[at] == '(' ? -1 : 0;
    } while (depth > 0 && at-- > 0);
    constexpr std::string_view kUnnamed = "(anonymous namespace)";
    if (depth == 0 && at > 0 && result.compare(at, kUnnamed.size(), kUnnamed) != 0) result.resize(at);
  }
  if (result.size() > kLongestName) result = result.substr(0, kLongestName) + "…";
  return result;
}

std::string name_of(std::vector<Module>& modules, const void* frame) {
  const auto address = reinterpret_cast<std::uint64_t>(frame);
  for (Module& module : modules) {
    const bool here = std::ranges::any_of(
        module.parts, [&](const auto& part) { return address >= part.first && address < part.second; });
    if (!here) continue;
    if (!module.functions) module.functions = std::make_unique<Functions>(module.path);
    const auto name = module.functions->at(address - module.base);
    return name ? fmt::format("{} ({})", readable(*name), module.name)
                : fmt::format("{}+{:#x}", module.name, address - module.base);
  }
  return fmt::format("{:#x}", address);
}

// Without the frames of this file's handler and of the system's call to it: the frame of the interrupted
// instruction comes after them.
std::string stack_text(std::vector<Module>& modules, const Slot& slot, bool by_signal) {
  const int count = slot.count.load(std::memory_order_acquire);
  std::string text;
  constexpr int kOfSignal = 2;
  for (int i = by_signal ? std::min(kOfSignal, count) : 1; i < count; ++i) {
    const auto address = reinterpret_cast<std::uintptr_t>(slot.frames[static_cast<std::size_t>(i)]);
    // The return address is after the call, and may belong to the next function.
    const bool exact = by_signal && i == kOfSignal;
    text +=
        fmt::format("    {}\n", name_of(modules, reinterpret_cast<const void*>(address - (exact ? 0 : 1))));
  }
  return text;
}

}  // namespace

void prepare_stacks() {
  static std::once_flag once;
  std::call_once(once, [] {
    std::array<void*, 4> frames{};
    ::backtrace(frames.data(), static_cast<int>(frames.size()));  // loads the library that unwinds
    struct sigaction action {};
    action.sa_handler = answer;
    action.sa_flags = SA_RESTART;
    ::sigaction(signal_number(), &action, nullptr);
  });
}

std::string thread_stacks() {
  prepare_stacks();
  static std::mutex asking;  // one at a time
  const std::lock_guard lock(asking);
  const std::vector<pid_t> all = threads();
  const auto self = static_cast<pid_t>(::syscall(SYS_gettid));
  static std::deque<Question> questions;  // see Question
  questions.push_back({all.size(), std::make_unique<Slot[]>(all.size())});
  Question* question = &questions.back();
  for (std::size_t i = 0; i < all.size(); ++i) question->slots[i].thread = all[i];
  asked.store(question, std::memory_order_release);
  for (const pid_t thread : all)
    if (thread != self) ::syscall(SYS_tgkill, ::getpid(), thread, signal_number());
  const auto slots = std::span(question->slots.get(), question->size);
  for (Slot& slot : slots)
    if (slot.thread == self) slot.count = ::backtrace(slot.frames.data(), kFrames);
  const auto deadline = std::chrono::steady_clock::now() + kAnswerTime;
  while (std::chrono::steady_clock::now() < deadline &&
         std::ranges::any_of(slots, [](const Slot& slot) { return slot.count < 0; }))
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  asked = nullptr;

  std::vector<Module> modules = loaded_modules();
  std::vector<std::pair<std::string, std::vector<pid_t>>> places;  // by stack, in the order of threads
  for (const Slot& slot : slots) {
    std::string text;
    if (slot.count >= 0) {
      text = stack_text(modules, slot, slot.thread != self);
    } else {
      const std::string stat = line_of(slot.thread, "stat");
      const std::size_t state = stat.rfind(')');
      if (state == std::string::npos || state + 2 >= stat.size()) continue;  // it has ended
      text = fmt::format("    does not answer: state {} in the kernel, at {}\n", stat[state + 2],
                         line_of(slot.thread, "wchan"));
    }
    text = fmt::format("({}{})\n", line_of(slot.thread, "comm"), slot.thread == self ? ", asks" : "") + text;
    const auto known = std::ranges::find(places, text, &std::pair<std::string, std::vector<pid_t>>::first);
    if (known == places.end())
      places.push_back({std::move(text), {slot.thread}});
    else
      known->second.push_back(slot.thread);
  }
  std::string result;
  for (const auto& [text, at] : places)
    result += fmt::format("  thread{} {} {}", at.size() == 1 ? "" : "s", fmt::join(at, ", "), text);
  return result;
}

std::string demangled(const char* symbol) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> name(abi::__cxa_demangle(symbol, nullptr, nullptr, &status),
                                                    std::free);
  return status == 0 && name ? name.get() : symbol;
}

}  // namespace redline
