#include "base/append_file.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"

namespace redline {
namespace {

constexpr double kRetrySeconds = 1;               // between tries while the file cannot be written
constexpr std::size_t kMostWaiting = 64U << 20U;  // bytes

}  // namespace

AppendFile::AppendFile(std::filesystem::path path, Existing existing) : path_(std::move(path)) {
  const int mode = existing == Existing::refuse ? O_EXCL : 0;
  descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | mode, 0644);
  if (descriptor_ < 0) throw IoError("cannot create {}: {}", path_.string(), std::strerror(errno));
  whole_bytes_ = ::lseek(descriptor_, 0, SEEK_END);
}

AppendFile::~AppendFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void AppendFile::refuse() const {
  throw IoError("cannot write {}: {}; free some space or choose another --output-dir", path_.string(),
                std::strerror(error_));
}

void AppendFile::append(std::string_view record) {
  waiting_ += record;
  if (error_ != 0 && since_tried_.seconds() < kRetrySeconds) return;
  if (!flush() && waiting_.size() > kMostWaiting) refuse();
}

bool AppendFile::flush() {
  since_tried_.restart();
  std::size_t done = 0;
  while (done < waiting_.size()) {
    const ssize_t written = ::write(descriptor_, waiting_.data() + done, waiting_.size() - done);
    if (written >= 0) {
      done += static_cast<std::size_t>(written);
      continue;
    }
    if (errno == EINTR) continue;
    const int reason = errno;
    if (error_ == 0) {
      log_warning("cannot write {}: {}; new lines are kept in memory until it can be written again",
                  path_.string(), std::strerror(reason));
    }
    error_ = reason;
    // A torn record would spoil the file for its readers. If even this fails there is nothing left to try.
    [[maybe_unused]] const int cut = ::ftruncate(descriptor_, whole_bytes_);
    [[maybe_unused]] const off_t back = ::lseek(descriptor_, whole_bytes_, SEEK_SET);
    return false;
  }
  if (error_ != 0) log_warning("{} can be written again, and nothing was lost", path_.string());
  error_ = 0;
  whole_bytes_ += static_cast<std::int64_t>(done);
  waiting_.clear();
  return true;
}

void AppendFile::finish() {
  if (!flush()) refuse();
}

}  // namespace redline
