// Reads any bytes as a tf.Example, and what that gives written and read again: the same.
#include <algorithm>
#include <cstdint>

#include "base/error.h"
#include "data/sources/example.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  using namespace redline::data;
  try {
    const ImageExample example = parse_example({bytes, size});
    const std::vector<std::uint8_t> written = serialize_example(example);
    const ImageExample again = parse_example(written);
    if (again.label != example.label || again.filename != example.filename ||
        !std::equal(again.encoded.begin(), again.encoded.end(), example.encoded.begin(),
                    example.encoded.end()))
      __builtin_trap();
  } catch (const redline::DataError&) {
  }
  return 0;
}
