// Reads any bytes as the pickle of a state dict: tensors that lie inside their storages, or DataError.
#include <cstdint>

#include "base/error.h"
#include "weights/pickle.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  using namespace redline::weights;
  try {
    for (const PickledTensor& tensor : parse_state_dict({bytes, size}).tensors) {
      std::uint64_t elements = 1, last = tensor.offset;
      for (std::size_t axis = 0; axis < tensor.shape.size(); ++axis) {
        if (tensor.shape[axis] < 0 || tensor.strides[axis] < 0) __builtin_trap();
        elements *= static_cast<std::uint64_t>(tensor.shape[axis]);
        if (tensor.shape[axis] > 0)
          last += static_cast<std::uint64_t>(tensor.shape[axis] - 1) *
                  static_cast<std::uint64_t>(tensor.strides[axis]);
      }
      if (elements > tensor.storage_size || (elements > 0 && last >= tensor.storage_size)) __builtin_trap();
    }
  } catch (const redline::DataError&) {
  }
  return 0;
}
