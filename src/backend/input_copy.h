// How a batch is copied from host memory to a device with its own memory. Backends that work in main memory
// do not use it.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include "base/error.h"

namespace redline::backend {

enum class InputCopy {
  pinned,          // page-locked memory, read by DMA
  pageable,        // ordinary memory, handed to the driver as it is
  write_combined,  // page-locked memory that the host does not cache: fast to write, slow to read
  mapped,          // page-locked memory that a kernel reads over the bus
  managed,         // memory whose pages move: prefetched to the device, and fetched back as the host writes
  chunked,         // ordinary memory, through two page-locked chunks, used alternately
};

inline constexpr std::array<std::string_view, 6> kInputCopyNames = {"pinned", "pageable", "write-combined",
                                                                    "mapped", "managed",  "chunked"};

inline std::string_view name_of(InputCopy method) {
  return kInputCopyNames[static_cast<std::size_t>(method)];
}

// Throws UsageError for an unknown name.
inline InputCopy parse_input_copy(std::string_view name) {
  for (std::size_t i = 0; i < kInputCopyNames.size(); ++i)
    if (kInputCopyNames[i] == name) return static_cast<InputCopy>(i);
  throw UsageError("'{}' is not a method to copy inputs", name);
}

}  // namespace redline::backend
