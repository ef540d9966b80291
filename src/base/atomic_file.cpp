#include "base/atomic_file.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/process.h"

namespace redline {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t kBufferBytes = 256 * 1024;
constexpr std::string_view kSuffix = ".partial";

std::string reason(int error) { return std::generic_category().message(error); }

// ".<name>.<pid>-<n>.partial": hidden, unique among live processes, and names its process.
fs::path partial_path(const fs::path& path) {
  static std::atomic<unsigned> serial{0};
  const std::string name =
      fmt::format(".{}.{}-{}{}", path.filename().string(), ::getpid(), serial++, kSuffix);
  return path.parent_path() / name;
}

// Whether a path names something open, such as /dev/stdout, which may be any file.
bool names_descriptor(const fs::path& path) {
  std::error_code ignored;
  return fs::weakly_canonical(path.parent_path(), ignored).string().starts_with("/proc/") ||
         fs::read_symlink(path, ignored).string().starts_with("/proc/");
}

bool can_be_replaced(const fs::path& path) {
  std::error_code ignored;
  const fs::file_status status = fs::status(path, ignored);
  const bool file = !fs::exists(status) || fs::is_regular_file(status) || fs::is_directory(status);
  return file && !names_descriptor(path);
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

// The process id in a partial file's name; 0 when the name is not one of ours.
pid_t owner_of(const std::string& name) {
  if (name.size() < 2 || name[0] != '.' || !name.ends_with(kSuffix)) return 0;
  const std::size_t end = name.size() - kSuffix.size();
  const std::size_t dot = name.rfind('.', end - 1);
  if (dot == std::string::npos || dot == 0) return 0;
  const std::string middle = name.substr(dot + 1, end - dot - 1);
  const std::size_t dash = middle.find('-');
  if (dash == 0 || dash == std::string::npos || dash > 9 || dash + 1 == middle.size()) return 0;
  if (middle.find_first_not_of("0123456789-") != std::string::npos) return 0;
  return static_cast<pid_t>(std::stol(middle.substr(0, dash)));
}

}  // namespace

AtomicFile::AtomicFile(fs::path path, Sync sync) : path_(std::move(path)), sync_(sync) {
  if (!path_.has_filename()) throw IoError("cannot write {}: not a file name", path_.string());
  if (can_be_replaced(path_)) {
    std::error_code not_there;
    if (const fs::path target = fs::canonical(path_, not_there); !not_there) path_ = target;
    partial_ = partial_path(path_);
    fd_ = ::open(partial_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  } else {
    fd_ = ::open(path_.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  }
  if (fd_ < 0) throw IoError("cannot write {}: {}", path_.string(), reason(errno));
}

AtomicFile::~AtomicFile() { discard(); }

void AtomicFile::discard() noexcept {
  if (fd_ < 0) return;
  ::close(std::exchange(fd_, -1));
  if (!partial_.empty()) ::unlink(partial_.c_str());
}

void AtomicFile::write_through(const std::byte* data, std::size_t count) {
  while (count > 0) {
    const ssize_t written = ::write(fd_, data, count);
    if (written < 0) {
      if (errno == EINTR) continue;
      throw IoError("cannot write {}: {}", path_.string(), reason(errno));
    }
    data += written;
    count -= static_cast<std::size_t>(written);
  }
}

void AtomicFile::flush() {
  write_through(buffer_.data(), buffer_.size());
  buffer_.clear();
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  check(fd_ >= 0, "{} is written after commit", path_.string());
  if (buffer_.size() + bytes.size() > kBufferBytes) flush();
  if (bytes.size() >= kBufferBytes) {
    write_through(bytes.data(), bytes.size());
  } else {
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
  }
  size_ += bytes.size();
}

void AtomicFile::write(std::string_view text) { write(std::as_bytes(std::span(text))); }

void AtomicFile::commit() {
  check(fd_ >= 0, "{} is committed twice", path_.string());
  flush();
  const bool sync = sync_ == Sync::yes && !partial_.empty();
  if (sync && ::fsync(fd_) != 0) throw IoError("cannot sync {}: {}", path_.string(), reason(errno));
  // Some file systems report a full disk only now, so closing comes before the rename.
  const bool closed = ::close(std::exchange(fd_, -1)) == 0;
  const bool named = partial_.empty() || (closed && ::rename(partial_.c_str(), path_.c_str()) == 0);
  if (!closed || !named) {
    const int error = errno;
    if (!partial_.empty()) ::unlink(partial_.c_str());
    throw IoError("cannot write {}: {}", path_.string(), reason(error));
  }
  if (sync) sync_folder(path_.has_parent_path() ? path_.parent_path() : ".");
}

void sync_file(const fs::path& path) {
  const Descriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0 || ::fsync(fd.get()) != 0)
    throw IoError("cannot sync {}: {}", path.string(), reason(errno));
}

void sync_folder(const fs::path& folder) {
  const Descriptor fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // File systems that cannot sync a folder say EINVAL; there is no more to do.
  if (fd.get() < 0 || (::fsync(fd.get()) != 0 && errno != EINVAL)) {
    throw IoError("cannot sync the folder {}: {}", folder.string(), reason(errno));
  }
}

void write_file_atomically(const fs::path& path, std::string_view content, Sync sync) {
  AtomicFile file(path, sync);
  file.write(content);
  file.commit();
}

std::size_t remove_partial_files(const fs::path& folder) {
  std::size_t removed = 0;
  std::error_code error;
  fs::directory_iterator entries(folder, error);
  if (error) throw IoError("cannot read the folder {}: {}", folder.string(), error.message());
  for (const auto& entry : entries) {
    const pid_t owner = owner_of(entry.path().filename().string());
    if (owner <= 0) continue;
    if (!is_running(owner) && ::unlink(entry.path().c_str()) == 0) ++removed;
  }
  return removed;
}

std::string read_file(const fs::path& path, std::size_t most) {
  const Descriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0) throw IoError("cannot read {}: {}", path.string(), reason(errno));
  struct stat info {};
  std::string content;
  if (::fstat(fd.get(), &info) == 0 && info.st_size > 0)
    content.reserve(std::min(static_cast<std::size_t>(info.st_size), most));
  // Files of /proc say size 0, so the end is where read says it is.
  char chunk[64 * 1024];
  for (;;) {
    const ssize_t count = ::read(fd.get(), chunk, sizeof chunk);
    if (count == 0) return content;
    if (count < 0) {
      if (errno == EINTR) continue;
      throw IoError("cannot read {}: {}", path.string(), reason(errno));
    }
    content.append(chunk, static_cast<std::size_t>(count));
    if (content.size() > most)  // a device has no end
      throw DataError("{} has more than {} bytes, which is too much for such a file", path.string(), most);
  }
}

}  // namespace redline
