#include "weights/pickle.h"

#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/printable.h"
#include "weights/pickle_machine.h"

namespace redline::weights {
namespace {

using pickle::Kind;
using pickle::Machine;
using pickle::Value;

// Names and tensors of a dict; none for other objects.
std::vector<PickledTensor> tensors_of(const Machine& machine, const Value& dict) {
  std::vector<PickledTensor> found;
  if (dict.kind != Kind::dict) return found;
  for (std::size_t i = 0; i + 1 < dict.items.size(); i += 2) {
    const Value &key = machine.value(dict.items[i]), &value = machine.value(dict.items[i + 1]);
    if (key.kind != Kind::text || value.kind != Kind::tensor) continue;
    if (key.text.size() > pickle::kMostName) throw DataError("a tensor's name is too long");
    found.push_back(machine.tensor(value));
    found.back().name = key.text;
  }
  return found;
}

// The value for a key of a dict; null if there is none.
const Value* find(const Machine& machine, const Value& dict, std::string_view name) {
  for (std::size_t i = 0; i + 1 < dict.items.size(); i += 2) {
    const Value& key = machine.value(dict.items[i]);
    if (key.kind == Kind::text && key.text == name) return &machine.value(dict.items[i + 1]);
  }
  return nullptr;
}

[[noreturn]] void refuse_object(const Value& object) {
  throw DataError(
      "it contains a Python object ({}), not a state dict: save model.state_dict() instead, in the program "
      "that made it",
      printable(object.text.substr(0, 100)));
}

}  // namespace

StateDict parse_state_dict(std::span<const std::uint8_t> pickle, std::size_t* end) {
  Machine machine(pickle);
  const Value& root = machine.value(machine.run());
  if (end != nullptr) *end = machine.end();
  if (root.kind == Kind::object) refuse_object(root);
  std::vector<PickledTensor> found = tensors_of(machine, root);
  if (!found.empty()) return {std::move(found), machine.storages()};
  if (root.kind == Kind::dict) {
    for (const std::string_view name : {"state_dict", "model_state_dict", "model", "net"}) {
      const Value* inner = find(machine, root, name);
      if (inner == nullptr) continue;
      if (inner->kind == Kind::object) refuse_object(*inner);
      found = tensors_of(machine, *inner);
      if (!found.empty()) return {std::move(found), machine.storages()};
    }
  }
  throw DataError(
      "it contains no state dict: neither tensors by name, nor a 'state_dict' or 'model' with them");
}

std::vector<std::string> parse_texts(std::span<const std::uint8_t> pickle, std::size_t& end) {
  Machine machine(pickle);
  const Value& root = machine.value(machine.run());
  end = machine.end();
  std::vector<std::string> texts;
  if (root.kind != Kind::list) return texts;
  for (const pickle::Id id : root.items) texts.push_back(pickle::cut(machine.value(id).text));
  return texts;
}

}  // namespace redline::weights
