// What a rank is doing, for the report on a hung job: the step and phase set by the training loop, and the
// calls that wait for other ranks.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <string>

namespace redline::comm {

// Any thread.
class Position {
 public:
  // `phase` is a literal: "training".
  void at(const char* phase, std::int64_t step);
  // The folder for reports on a hang; empty until there is a run folder.
  void keep_in(std::filesystem::path folder);
  std::filesystem::path folder() const;

  // A call that all ranks make together, on one of a few channels; `name` is a literal, "an all-reduce".
  void begin_call(std::size_t channel, const char* name, std::size_t bytes);
  void end_call(std::size_t channel);
  std::int64_t calls() const;  // begun

  // "at step 58, training; in an all-reduce of gradients (2.4 MiB) for 4.2 s, its call 340"
  std::string text() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Call {
    const char* name = nullptr;  // none
    std::size_t bytes = 0;
    std::int64_t number = 0;
    Clock::time_point since{};
  };

  mutable std::mutex mutex_;
  const char* phase_ = "joining";
  std::int64_t step_ = 0;
  std::filesystem::path folder_;
  std::array<Call, 4> open_{};
  std::int64_t calls_ = 0;
};

// Appends a rank's report on a hang to its file in `folder`, which is created. Throws IoError.
void keep_account(const std::filesystem::path& folder, const std::string& file, const std::string& account);

}  // namespace redline::comm
