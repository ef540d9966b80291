#include "base/random_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace redline {

RandomFile::RandomFile(std::filesystem::path path) : path_(std::move(path)) {
  fd_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd_ < 0) throw IoError("cannot open {}: {}", path_.string(), std::strerror(errno));
  struct stat status {};
  const bool known = ::fstat(fd_, &status) == 0;
  if (!known || !S_ISREG(status.st_mode)) {
    const int reason = errno;
    ::close(fd_);
    throw IoError("cannot read {}: {}", path_.string(), known ? "not a regular file" : std::strerror(reason));
  }
  size_ = static_cast<std::uint64_t>(status.st_size);
  modified_ns_ = std::int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec;
}

RandomFile::~RandomFile() {
  if (fd_ >= 0) ::close(fd_);
}

RandomFile::RandomFile(RandomFile&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      size_(other.size_),
      modified_ns_(other.modified_ns_) {}

void RandomFile::read(std::uint64_t offset, std::span<std::uint8_t> into) const {
  std::size_t done = 0;
  while (done < into.size()) {
    const ssize_t got =
        ::pread(fd_, into.data() + done, into.size() - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw IoError("cannot read at byte {}: {}", offset + done, std::strerror(errno));
    if (got == 0)
      throw DataError("the file ends at byte {}, {} bytes early", offset + done, into.size() - done);
    done += static_cast<std::size_t>(got);
  }
}

}  // namespace redline
