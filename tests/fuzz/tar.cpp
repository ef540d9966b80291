// Lists any bytes as a tar: every member lies inside, under a name that stays inside, or DataError.
#include <cstdint>
#include <cstring>

#include "base/error.h"
#include "data/sources/tar.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  using namespace redline::data;
  const ReadAt read = [&](std::uint64_t offset, std::span<std::uint8_t> into) {
    if (offset > size || into.size() > size - offset) __builtin_trap();
    if (!into.empty()) std::memcpy(into.data(), bytes + offset, into.size());
  };
  try {
    for (const TarMember& member : list_tar(read, 0, size)) {
      if (member.offset > size || member.size > size - member.offset) __builtin_trap();
      if (member.name.empty() || member.name.front() == '/' || member.name.starts_with("../"))
        __builtin_trap();
    }
  } catch (const redline::DataError&) {
  }
  return 0;
}
