// Reads any bytes as a TFRecord file and as the index of one: frames inside the file, or an error.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/tfrecord.h"

namespace {

// A file in memory, with a path.
class MemoryFile {
 public:
  MemoryFile(const std::uint8_t* bytes, std::size_t size) : fd_(::memfd_create("fuzz", MFD_CLOEXEC)) {
    if (fd_ < 0 || ::write(fd_, bytes, size) != static_cast<ssize_t>(size)) __builtin_trap();
  }
  ~MemoryFile() { ::close(fd_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  int fd_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  using namespace redline;
  const MemoryFile memory(bytes, size);
  const RandomFile file(memory.path());
  std::vector<std::uint8_t> scratch;
  const auto read = [&](const std::vector<RecordFrame>& frames) {
    for (const RecordFrame& frame : frames) {
      if (frame.size < kRecordOverhead || frame.offset > size || frame.size > size - frame.offset)
        __builtin_trap();
      try {
        if (read_record(file, frame, scratch).size() != frame.size - kRecordOverhead) __builtin_trap();
      } catch (const DataError&) {
      }
    }
  };
  read(list_records(file).frames);
  try {
    read(read_index(memory.path(), size));
  } catch (const DataError&) {
  }
  return 0;
}
