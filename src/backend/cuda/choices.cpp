#include "backend/cuda/choices.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>

#include "base/atomic_file.h"
#include "base/log.h"

namespace redline::backend::cuda {

Choices::Choices(std::string file) : file_(std::move(file)) {
  std::ifstream in(file_);
  std::string key;
  std::int64_t choice = 0;
  while (in >> key >> choice) choices_[key] = choice;
}

std::int64_t Choices::find(const std::string& key) const {
  const std::lock_guard lock(mutex_);
  const auto it = choices_.find(key);
  return it == choices_.end() ? -1 : it->second;
}

void Choices::put(const std::string& key, std::int64_t choice) {
  const std::lock_guard lock(mutex_);
  choices_[key] = choice;
  changed_ = true;
}

void Choices::save() {
  const std::lock_guard lock(mutex_);
  if (!changed_ || file_.empty()) return;
  changed_ = false;
  try {
    std::filesystem::create_directories(std::filesystem::path(file_).parent_path());
    AtomicFile out(file_, Sync::no);
    for (const auto& [key, choice] : choices_) out.write(fmt::format("{} {}\n", key, choice));
    out.commit();
  } catch (const std::exception& error) {
    log_warning("the choice of kernels is not remembered: {}", error.what());
  }
}

}  // namespace redline::backend::cuda
