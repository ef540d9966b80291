#include "data/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace redline::data {
namespace {

// Closes what was opened.
struct Descriptor {
  int fd;
  explicit Descriptor(int opened) : fd(opened) {}
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
};

}  // namespace

std::span<const std::uint8_t> read_whole(const std::filesystem::path& path, std::int64_t max_bytes,
                                         std::vector<std::uint8_t>& scratch) {
  // O_NONBLOCK: a pipe that poses as an image must not hang the reader.
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.fd < 0) throw IoError("cannot open the file: {}", std::strerror(errno));
  struct stat status {};
  if (::fstat(file.fd, &status) != 0) throw IoError("cannot access the file: {}", std::strerror(errno));
  if (!S_ISREG(status.st_mode)) throw DataError("not a regular file");
  if (status.st_size > max_bytes)
    throw DataError("{} bytes, more than the limit of {}", static_cast<std::int64_t>(status.st_size),
                    max_bytes);
  const auto size = static_cast<std::size_t>(status.st_size);
  if (scratch.size() < size) scratch.resize(size);
  std::size_t done = 0;
  while (done < size) {
    const ssize_t got = ::read(file.fd, scratch.data() + done, size - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw IoError("cannot read the file: {}", std::strerror(errno));
    if (got == 0) break;  // shorter than it was a moment ago; the decoder will say what is missing
    done += static_cast<std::size_t>(got);
  }
  return {scratch.data(), done};
}

void write_whole(const std::filesystem::path& path, std::span<const std::uint8_t> bytes) {
  Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (file.fd < 0) throw IoError("cannot make {}: {}", path.string(), std::strerror(errno));
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t wrote = ::write(file.fd, bytes.data() + done, bytes.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) throw IoError("cannot write {}: {}", path.string(), std::strerror(errno));
    done += static_cast<std::size_t>(wrote);
  }
  // Network file systems report a full disk only here.
  if (::close(std::exchange(file.fd, -1)) != 0)
    throw IoError("cannot write {}: {}", path.string(), std::strerror(errno));
}

}  // namespace redline::data
