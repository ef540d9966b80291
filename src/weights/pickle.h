// Pickles of PyTorch's state dicts, read as data. A pickle is a program for a small stack machine that may
// call anything. This machine knows numbers, texts, lists, dicts and tensors, and calls nothing: anything
// else that a pickle builds becomes an opaque object. Time and memory are bounded by the length of the
// pickle, and there is no recursion on the C++ stack.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "weights/safetensors_header.h"

namespace redline::weights {

inline constexpr std::size_t kMostPickleBytes = std::size_t{32} << 20;  // a ResNet-152's has 0.1 MB

// A tensor as a view of a storage, checked to lie inside it.
struct PickledTensor {
  std::string name;
  ElementType type = ElementType::f32;
  Dimensions shape, strides;       // in elements
  std::uint64_t offset = 0;        // of the first element
  std::string storage;             // its key
  std::uint64_t storage_size = 0;  // in elements
};

struct StateDict {
  std::vector<PickledTensor> tensors;
  std::map<std::string, ElementType> storages;  // all that the pickle names, by key
};

// The tensors of the first state dict in `pickle`: of the dict itself, or of the one under "state_dict",
// "model_state_dict", "model" or "net". `end`, where given, becomes the byte after the pickle. Throws
// DataError for an opcode that is not known, a pickle that is cut off or inconsistent, or one without tensors
// by name, saying what it contains instead.
StateDict parse_state_dict(std::span<const std::uint8_t> pickle, std::size_t* end = nullptr);

// A list of texts; any object other than one gives none.
std::vector<std::string> parse_texts(std::span<const std::uint8_t> pickle, std::size_t& end);

}  // namespace redline::weights
