#include "comm/position.h"

#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "base/append_file.h"
#include "base/error.h"
#include "base/text.h"

namespace redline::comm {

void Position::at(const char* phase, std::int64_t step) {
  const std::lock_guard lock(mutex_);
  phase_ = phase;
  step_ = step;
}

void Position::keep_in(std::filesystem::path folder) {
  const std::lock_guard lock(mutex_);
  folder_ = std::move(folder);
}

std::filesystem::path Position::folder() const {
  const std::lock_guard lock(mutex_);
  return folder_;
}

void Position::begin_call(std::size_t channel, const char* name, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  open_.at(channel) = {name, bytes, ++calls_, Clock::now()};
}

void Position::end_call(std::size_t channel) {
  const std::lock_guard lock(mutex_);
  open_.at(channel).name = nullptr;
}

std::int64_t Position::calls() const {
  const std::lock_guard lock(mutex_);
  return calls_;
}

std::string Position::text() const {
  const std::lock_guard lock(mutex_);
  std::string text = step_ > 0 ? fmt::format("at step {}, {}", step_, phase_) : std::string(phase_);
  bool waits = false;
  for (const Call& call : open_) {
    if (call.name == nullptr) continue;
    waits = true;
    text += fmt::format("; in {}{} for {:.1f} s, its call {}", call.name,
                        call.bytes == 0 ? "" : fmt::format(" ({})", format_bytes(call.bytes)),
                        std::chrono::duration<double>(Clock::now() - call.since).count(), call.number);
  }
  if (!waits) text += fmt::format("; not waiting for other ranks, after {} calls", calls_);
  return text;
}

void keep_account(const std::filesystem::path& folder, const std::string& file, const std::string& account) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw IoError("cannot make {}: {}", folder.string(), error.message());
  AppendFile out(folder / file, Existing::append);
  out.append(account);
}

}  // namespace redline::comm
