#include "base/append_file.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "base/error.h"

namespace redline {

AppendFile::AppendFile(std::filesystem::path path, Existing existing) : path_(std::move(path)) {
  const int mode = existing == Existing::refuse ? O_EXCL : 0;
  descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | mode, 0644);
  if (descriptor_ < 0) throw IoError("cannot create {}: {}", path_.string(), std::strerror(errno));
  whole_bytes_ = ::lseek(descriptor_, 0, SEEK_END);
}

AppendFile::~AppendFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void AppendFile::append(std::string_view record) {
  std::size_t done = 0;
  while (done < record.size()) {
    const ssize_t written = ::write(descriptor_, record.data() + done, record.size() - done);
    if (written >= 0) {
      done += static_cast<std::size_t>(written);
      continue;
    }
    if (errno == EINTR) continue;
    const int reason = errno;
    // A torn record would spoil the file for its readers. If even this fails there is nothing left to try.
    [[maybe_unused]] const int cut = ::ftruncate(descriptor_, whole_bytes_);
    [[maybe_unused]] const off_t back = ::lseek(descriptor_, whole_bytes_, SEEK_SET);
    throw IoError("cannot write {}: {}; free some space or choose another --output-dir", path_.string(),
                  std::strerror(reason));
  }
  whole_bytes_ += static_cast<std::int64_t>(record.size());
}

}  // namespace redline
