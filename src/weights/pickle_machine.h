// The stack machine that runs a pickle, as far as state dicts need it. It makes values and calls nothing; see
// pickle.h for the result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "weights/pickle.h"

namespace redline::weights::pickle {

enum class Kind : std::uint8_t {
  none,
  integer,
  text,
  tuple,
  list,
  dict,
  global,
  storage,
  tensor,
  object,
};

using Id = std::uint32_t;

// The members used depend on the kind. `text`: of a text, a global ("torch FloatStorage"), an object (its
// maker) and a storage (its key). `number`: of an integer, a storage (its number of elements) and a tensor
// (its index in the list).
struct Value {
  Kind kind = Kind::none;
  ElementType type = ElementType::f32;  // of a storage
  std::int64_t number = 0;
  std::string text = {};
  std::vector<Id> items = {};  // of a tuple or list; of a dict keys and values in turn
};

// Copied names are short, so that a pickle that repeats one a million times stays small and fast.
inline constexpr std::size_t kMostName = 256;

inline std::string cut(const std::string& text) { return text.substr(0, kMostName); }

class Machine {
 public:
  // The bytes outlive it. Throws DataError when they are more than a state dict can need.
  explicit Machine(std::span<const std::uint8_t> bytes);

  // Runs the pickle and returns its object. Throws DataError, as parse_state_dict does.
  Id run();

  std::size_t end() const { return at_; }  // after run(): the byte after the pickle
  const std::map<std::string, ElementType>& storages() const { return storages_; }
  const Value& value(Id id) const { return values_[id]; }
  const PickledTensor& tensor(const Value& value) const {
    return tensors_[static_cast<std::size_t>(value.number)];
  }

 private:
  [[noreturn]] void broken(std::string_view how) const;  // throws DataError

  std::span<const std::uint8_t> take(std::uint64_t count);
  std::uint64_t take_number(std::size_t bytes);
  std::string take_text(std::uint64_t size);
  std::string take_line();

  void push(Value value);
  Id pop();
  Value& top();
  std::vector<Id> pop_to_mark();
  std::vector<Id> pop_several(std::size_t count);

  void push_number(std::int64_t number) { push({Kind::integer, {}, number}); }
  void push_text(std::uint64_t size) { push({Kind::text, {}, 0, take_text(size)}); }
  void push_items(Kind kind, std::vector<Id> items) { push({kind, {}, 0, {}, std::move(items)}); }
  void push_object(const std::string& made_by) { push({Kind::object, {}, 0, cut(made_by)}); }

  // Adds to the list or dict on top of the stack; other objects ignore the items.
  void add_items(Kind kind, const std::vector<Id>& items);

  void put(std::uint64_t slot);
  void get(std::uint64_t slot);

  void push_long(std::uint64_t size);

  // ('storage', torch.FloatStorage, key, device, elements)
  void load_storage();

  std::optional<Dimensions> numbers(const Value& list) const;

  // The arguments of _rebuild_tensor_v2: storage, offset, size, stride, and what does not matter here.
  void rebuild_tensor(Id tuple);

  static bool lies_inside(const PickledTensor& tensor);

  void call();

  void step();
  bool step_number(std::uint8_t code);
  bool step_text(std::uint8_t code);
  bool step_collection(std::uint8_t code);
  bool step_object(std::uint8_t code);

  std::span<const std::uint8_t> bytes_;
  std::size_t at_ = 0;
  bool done_ = false;
  std::vector<Value> values_;
  std::vector<PickledTensor> tensors_;
  std::map<std::string, ElementType> storages_;
  std::vector<Id> stack_;
  std::vector<std::size_t> marks_;  // heights of the stack
  std::unordered_map<std::uint64_t, Id> memo_;
};

}  // namespace redline::weights::pickle
