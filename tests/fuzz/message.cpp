// Reads any bytes as a message of the control connection, as one from a stranger: an object that can be sent
// on, or DataError.
#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "comm/wire.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  try {
    const redline::comm::Message message =
        redline::comm::decode(std::string_view(reinterpret_cast<const char*>(bytes), size));
    if (!message.is_object()) __builtin_trap();
    redline::comm::encode(message);
  } catch (const redline::DataError&) {
  }
  return 0;
}
