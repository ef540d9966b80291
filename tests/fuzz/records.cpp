// Reads any bytes as a TFRecord file and as the index of one: frames inside the file, or an error.
#include <cstdint>
#include <vector>

#include "base/error.h"
#include "base/tfrecord.h"
#include "memory_file.h"

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
  const RecordList list = list_records(file);
  read(list.frames);
  std::vector<RecordFrame> scanned;
  const std::string damage = scan_records(file, 1 << 20, [&](const RecordFrame& frame, auto data) {
    if (data && data->size() != frame.size - kRecordOverhead) __builtin_trap();
    scanned.push_back(frame);
  });
  if (scanned != list.frames || damage != list.damage) __builtin_trap();
  try {
    read(read_index(memory.path(), size));
  } catch (const DataError&) {
  }
  return 0;
}
