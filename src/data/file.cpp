#include "data/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
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

// Fills into as far as the file goes; returns how many bytes that was.
std::size_t read_up_to(const Descriptor& file, std::span<std::uint8_t> into) {
  std::size_t done = 0;
  while (done < into.size()) {
    const ssize_t got = ::read(file.fd, into.data() + done, into.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw IoError("cannot read the file: {}", std::strerror(errno));
    if (got == 0) break;
    done += static_cast<std::size_t>(got);
  }
  return done;
}

}  // namespace

std::span<std::uint8_t> FileBytes::room(std::size_t bytes) {
  large_.reset();
  lease_ = {};
  if (bytes <= static_cast<std::size_t>(kSmallImage)) {
    if (small_.size() < bytes) small_.resize(bytes);
    return {small_.data(), bytes};
  }
  lease_ = MemoryLease(MemoryFor::files, static_cast<std::int64_t>(bytes),
                       give_up_ ? *give_up_ : std::function<bool()>{});
  large_ = std::make_unique_for_overwrite<std::uint8_t[]>(bytes);
  return {large_.get(), bytes};
}

std::span<const std::uint8_t> read_whole(const std::filesystem::path& path, std::int64_t max_bytes,
                                         FileBytes& memory) {
  // O_NONBLOCK: a pipe that poses as an image must not hang the reader.
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.fd < 0) throw IoError("cannot open the file: {}", std::strerror(errno));
  struct stat status {};
  if (::fstat(file.fd, &status) != 0) throw IoError("cannot access the file: {}", std::strerror(errno));
  if (!S_ISREG(status.st_mode)) throw DataError("not a regular file");
  if (status.st_size > max_bytes)
    throw DataError("{} bytes, more than the limit of {}", static_cast<std::int64_t>(status.st_size),
                    max_bytes);
  const std::span<std::uint8_t> all = memory.room(static_cast<std::size_t>(status.st_size));
  // It may be shorter than it was a moment ago; the decoder will say what is missing.
  return all.first(read_up_to(file, all));
}

std::string read_text(const std::filesystem::path& path, std::int64_t max_bytes) {
  FileBytes memory;
  const std::span<const std::uint8_t> bytes = read_whole(path, max_bytes, memory);
  return {bytes.begin(), bytes.end()};
}

bool has_content(const std::filesystem::path& path, std::span<const std::uint8_t> bytes) {
  std::error_code error;
  if (std::filesystem::file_size(path, error) != bytes.size() || error) return false;
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.fd < 0) throw IoError("cannot open {}: {}", path.string(), std::strerror(errno));
  std::vector<std::uint8_t> piece(std::min(bytes.size(), std::size_t{1} << 20));
  while (!bytes.empty()) {
    const std::span<std::uint8_t> next(piece.data(), std::min(piece.size(), bytes.size()));
    if (read_up_to(file, next) != next.size() || !std::equal(next.begin(), next.end(), bytes.begin()))
      return false;
    bytes = bytes.subspan(next.size());
  }
  return true;
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
