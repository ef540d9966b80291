#include "data/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace redline::data {
namespace {

struct Descriptor {
  int fd;
  explicit Descriptor(const std::filesystem::path& path)
      : fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    if (fd < 0) throw IoError("cannot open the file: {}", std::strerror(errno));
  }
  ~Descriptor() { ::close(fd); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
};

}  // namespace

std::span<const std::uint8_t> read_whole(const std::filesystem::path& path, std::int64_t max_bytes,
                                         std::vector<std::uint8_t>& scratch) {
  // O_NONBLOCK: a pipe that poses as an image must not hang the reader.
  const Descriptor file(path);
  struct stat status {};
  if (::fstat(file.fd, &status) != 0) throw IoError("cannot look at the file: {}", std::strerror(errno));
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

}  // namespace redline::data
