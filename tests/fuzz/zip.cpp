// Lists any bytes as a zip and reads every member: names that stay inside, sizes as promised, or DataError.
#include <cstdint>
#include <vector>

#include "base/error.h"
#include "data/sources/zip.h"
#include "memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  using namespace redline;
  const MemoryFile memory(bytes, size);
  const RandomFile file(memory.path());
  try {
    data::ZipReader reader;
    redline::data::FileBytes content;
    std::uint64_t packed = 0;
    for (const data::ZipMember& member : data::list_zip(file)) {
      if (member.name.empty() || member.name.front() == '/' || member.name.starts_with("../"))
        __builtin_trap();
      // Members share no bytes, so together they are no larger than the file.
      packed += member.packed;
      if (packed > size) __builtin_trap();
      try {
        if (reader.read(file, member, 1 << 20, content).size() != member.size) __builtin_trap();
      } catch (const DataError&) {
      }
    }
  } catch (const DataError&) {
  }
  return 0;
}
