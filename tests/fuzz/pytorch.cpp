// Opens any bytes as what torch.save writes, a zip or a stream, and reads every tensor: or DataError.
#include <cstdint>
#include <vector>

#include "base/error.h"
#include "memory_file.h"
#include "weights/pytorch.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  using namespace redline;
  const MemoryFile memory(bytes, size);
  try {
    const weights::PytorchReader reader(memory.path());
    for (const weights::Entry& entry : reader.entries()) {
      if (entry.bytes > size) __builtin_trap();  // no tensor is larger than its file
      if (!weights::is_floating(entry.type)) continue;
      std::vector<float> values(entry.elements());
      reader.read(entry, values);
    }
  } catch (const DataError&) {
  }
  return 0;
}
