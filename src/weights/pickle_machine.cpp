#include "weights/pickle_machine.h"

#include <algorithm>

#include "base/error.h"

namespace redline::weights::pickle {
namespace {

constexpr std::size_t kMostValues = std::size_t{1} << 21;
constexpr std::size_t kMostAxes = 8;

std::optional<ElementType> storage_type(std::string_view global) {
  constexpr std::pair<std::string_view, ElementType> kTypes[] = {
      {"torch FloatStorage", ElementType::f32},  {"torch HalfStorage", ElementType::f16},
      {"torch DoubleStorage", ElementType::f64}, {"torch BFloat16Storage", ElementType::bf16},
      {"torch LongStorage", ElementType::i64},   {"torch IntStorage", ElementType::i32},
      {"torch ShortStorage", ElementType::i16},  {"torch CharStorage", ElementType::i8},
      {"torch ByteStorage", ElementType::u8},    {"torch BoolStorage", ElementType::boolean}};
  const auto* found = std::ranges::find(kTypes, global, &std::pair<std::string_view, ElementType>::first);
  if (found == std::end(kTypes)) return {};
  return found->second;
}

}  // namespace

Machine::Machine(std::span<const std::uint8_t> bytes) : bytes_(bytes) {
  if (bytes.size() > kMostPickleBytes)
    throw DataError("its pickle has {} bytes, more than a state dict has", bytes.size());
}

void Machine::broken(std::string_view how) const { throw DataError("its pickle {} at byte {}", how, at_); }

Id Machine::run() {
  while (!done_) step();
  if (stack_.size() != 1 || !marks_.empty()) broken("ends with more than one object");
  return stack_.front();
}

std::span<const std::uint8_t> Machine::take(std::uint64_t count) {
  if (count > bytes_.size() - at_) broken("is cut off");
  const auto part = bytes_.subspan(at_, count);
  at_ += count;
  return part;
}

std::uint64_t Machine::take_number(std::size_t bytes) {
  std::uint64_t number = 0;
  const auto part = take(bytes);
  for (std::size_t i = bytes; i-- > 0;) number = number << 8 | part[i];
  return number;
}

std::string Machine::take_text(std::uint64_t size) {
  const auto part = take(size);
  return {part.begin(), part.end()};
}

std::string Machine::take_line() {
  const auto rest = bytes_.subspan(at_);
  const auto end = std::ranges::find(rest, '\n');
  if (end == rest.end()) broken("is cut off");
  if (static_cast<std::size_t>(end - rest.begin()) > kMostName) broken("has a name that is too long");
  std::string line(rest.begin(), end);
  at_ += line.size() + 1;
  return line;
}

void Machine::push(Value value) {
  if (values_.size() >= kMostValues) broken("has more objects than a state dict");
  stack_.push_back(static_cast<Id>(values_.size()));
  values_.push_back(std::move(value));
}

Id Machine::pop() {
  if (stack_.size() <= (marks_.empty() ? 0 : marks_.back())) broken("pops from an empty stack");
  const Id top = stack_.back();
  stack_.pop_back();
  return top;
}

Value& Machine::top() {
  if (stack_.size() <= (marks_.empty() ? 0 : marks_.back())) broken("pops from an empty stack");
  return values_[stack_.back()];
}

std::vector<Id> Machine::pop_to_mark() {
  if (marks_.empty()) broken("lacks a mark");
  const auto begin = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
  std::vector<Id> items(begin, stack_.end());
  stack_.erase(begin, stack_.end());
  marks_.pop_back();
  return items;
}

std::vector<Id> Machine::pop_several(std::size_t count) {
  std::vector<Id> items(count);
  for (std::size_t i = count; i-- > 0;) items[i] = pop();
  return items;
}

void Machine::add_items(Kind kind, const std::vector<Id>& items) {
  if (kind == Kind::dict && items.size() % 2 != 0) broken("has a key without a value");
  Value& into = top();
  if (into.kind == kind) into.items.insert(into.items.end(), items.begin(), items.end());
}

void Machine::put(std::uint64_t slot) {
  top();
  memo_[slot] = stack_.back();
}

void Machine::get(std::uint64_t slot) {
  const auto found = memo_.find(slot);
  if (found == memo_.end()) broken("reads a memo entry that does not exist");
  stack_.push_back(found->second);
  if (stack_.size() > kMostValues) broken("has more objects than a state dict");
}

void Machine::push_long(std::uint64_t size) {
  const auto part = take(size);
  if (size > 8) return push_object("a large number");
  std::uint64_t number = size > 0 && part.back() >= 0x80 ? ~std::uint64_t{0} : 0;
  for (std::size_t i = size; i-- > 0;) number = number << 8 | part[i];
  push_number(static_cast<std::int64_t>(number));
}

void Machine::load_storage() {
  const Value& id = values_[pop()];
  const auto item = [&](std::size_t i) -> const Value& { return values_[id.items[i]]; };
  const bool whole = id.kind == Kind::tuple && (id.items.size() == 5 || id.items.size() == 6) &&
                     item(0).text == "storage" && item(1).kind == Kind::global &&
                     item(2).kind == Kind::text && item(2).text.size() <= kMostName &&
                     item(4).kind == Kind::integer && item(4).number >= 0 &&
                     (id.items.size() == 5 || item(5).kind == Kind::none);
  if (!whole) broken("names a storage in an unknown form");
  const auto type = storage_type(item(1).text);
  if (!type) return push_object(std::string(item(1).text));
  storages_.emplace(item(2).text, *type);
  push({Kind::storage, *type, item(4).number, item(2).text});
}

std::optional<Dimensions> Machine::numbers(const Value& list) const {
  if ((list.kind != Kind::tuple && list.kind != Kind::list) || list.items.size() > kMostAxes) return {};
  Dimensions found;
  for (const Id id : list.items) {
    if (values_[id].kind != Kind::integer || values_[id].number < 0) return {};
    found.push_back(values_[id].number);
  }
  return found;
}

void Machine::rebuild_tensor(Id tuple) {
  const std::vector<Id>& arguments = values_[tuple].items;
  if (arguments.size() < 4) broken("builds a tensor from too few arguments");
  const Value &storage = values_[arguments[0]], &offset = values_[arguments[1]];
  if (storage.kind == Kind::object) return push_object(std::string(storage.text));
  const auto shape = numbers(values_[arguments[2]]), strides = numbers(values_[arguments[3]]);
  if (storage.kind != Kind::storage || offset.kind != Kind::integer || offset.number < 0 || !shape ||
      !strides || shape->size() != strides->size())
    broken("builds a tensor from the wrong arguments");
  PickledTensor tensor{{},
                       storage.type,
                       *shape,
                       *strides,
                       static_cast<std::uint64_t>(offset.number),
                       storage.text,
                       static_cast<std::uint64_t>(storage.number)};
  if (!lies_inside(tensor)) broken("builds a tensor that lies outside its storage");
  const auto place = static_cast<std::int64_t>(tensors_.size());
  tensors_.push_back(std::move(tensor));
  push({Kind::tensor, {}, place});
}

bool Machine::lies_inside(const PickledTensor& tensor) {
  std::uint64_t elements = 1, last = tensor.offset;
  const std::uint64_t room = tensor.storage_size;
  if (std::ranges::find(tensor.shape, 0) != tensor.shape.end()) return tensor.offset <= room;
  for (std::size_t axis = 0; axis < tensor.shape.size(); ++axis) {
    const auto size = static_cast<std::uint64_t>(tensor.shape[axis]);
    const auto stride = static_cast<std::uint64_t>(tensor.strides[axis]);
    // More elements than the storage has would mean repeated ones: small files could hold vast tensors.
    if (size > room || elements > room / size) return false;
    elements *= size;
    if (stride != 0 && (size - 1) > (room - std::min(room, last)) / stride) return false;
    last += (size - 1) * stride;
  }
  return last < room;
}

void Machine::call() {
  const Id arguments = pop(), function = pop();
  const std::string made_by = cut(values_[function].text);
  if (values_[arguments].kind != Kind::tuple) broken("calls something without a list of arguments");
  const std::vector<Id>& items = values_[arguments].items;
  if (values_[function].kind != Kind::global) return push_object(made_by);
  if (made_by == "torch._utils _rebuild_tensor_v2") return rebuild_tensor(arguments);
  if (made_by == "collections OrderedDict" && items.empty()) return push_items(Kind::dict, {});
  const bool parameter =
      made_by == "torch._utils _rebuild_parameter" || made_by == "torch._utils _rebuild_parameter_with_state";
  if (parameter && !items.empty()) {
    stack_.push_back(items.front());  // the tensor itself
    return;
  }
  push_object(made_by);
}

// Opcodes by the names that Python's pickletools gives them.
bool Machine::step_number(std::uint8_t code) {
  switch (code) {
    case 'N':  // NONE
      push({});
      return true;
    case 0x88:  // NEWTRUE
    case 0x89:  // NEWFALSE
      push_number(code == 0x88 ? 1 : 0);
      return true;
    case 'K':  // BININT1
      push_number(static_cast<std::int64_t>(take_number(1)));
      return true;
    case 'M':  // BININT2
      push_number(static_cast<std::int64_t>(take_number(2)));
      return true;
    case 'J':  // BININT
      push_number(static_cast<std::int32_t>(take_number(4)));
      return true;
    case 0x8a:  // LONG1
      push_long(take_number(1));
      return true;
    case 0x8b:  // LONG4
      push_long(take_number(4));
      return true;
    case 'G':  // BINFLOAT
      take(8);
      push_object("a number");
      return true;
    default:
      return false;
  }
}

bool Machine::step_text(std::uint8_t code) {
  switch (code) {
    case 'U':   // SHORT_BINSTRING
    case 0x8c:  // SHORT_BINUNICODE
    case 'C':   // SHORT_BINBYTES
      push_text(take_number(1));
      return true;
    case 'T':  // BINSTRING
    case 'X':  // BINUNICODE
    case 'B':  // BINBYTES
      push_text(take_number(4));
      return true;
    case 0x8d:  // BINUNICODE8
    case 0x8e:  // BINBYTES8
    case 0x96:  // BYTEARRAY8
      push_text(take_number(8));
      return true;
    default:
      return false;
  }
}

bool Machine::step_collection(std::uint8_t code) {
  switch (code) {
    case '(':  // MARK
      marks_.push_back(stack_.size());
      return true;
    case ')':  // EMPTY_TUPLE
      push_items(Kind::tuple, {});
      return true;
    case 0x85:  // TUPLE1 to TUPLE3
    case 0x86:
    case 0x87:
      push_items(Kind::tuple, pop_several(code - 0x84U));
      return true;
    case 't':  // TUPLE
      push_items(Kind::tuple, pop_to_mark());
      return true;
    case ']':  // EMPTY_LIST
      push_items(Kind::list, {});
      return true;
    case 'l':  // LIST
      push_items(Kind::list, pop_to_mark());
      return true;
    case '}':  // EMPTY_DICT
      push_items(Kind::dict, {});
      return true;
    case 'd': {  // DICT
      const std::vector<Id> items = pop_to_mark();
      push_items(Kind::dict, {});
      add_items(Kind::dict, items);
      return true;
    }
    case 0x8f:  // EMPTY_SET
      push_object("a set");
      return true;
    case 0x91:  // FROZENSET
      pop_to_mark();
      push_object("a set");
      return true;
    case 'a':  // APPEND
      add_items(Kind::list, pop_several(1));
      return true;
    case 'e':  // APPENDS
      add_items(Kind::list, pop_to_mark());
      return true;
    case 0x90:  // ADDITEMS
      pop_to_mark();
      return true;
    case 's':  // SETITEM
      add_items(Kind::dict, pop_several(2));
      return true;
    case 'u':  // SETITEMS
      add_items(Kind::dict, pop_to_mark());
      return true;
    default:
      return false;
  }
}

bool Machine::step_object(std::uint8_t code) {
  switch (code) {
    case 'c': {  // GLOBAL
      const std::string module = take_line();
      push({Kind::global, {}, 0, module + " " + take_line()});
      return true;
    }
    case 0x93: {  // STACK_GLOBAL
      const std::string name = cut(values_[pop()].text);
      push({Kind::global, {}, 0, cut(values_[pop()].text) + " " + name});
      return true;
    }
    case 'R':   // REDUCE
    case 0x81:  // NEWOBJ
      call();
      return true;
    case 0x92: {  // NEWOBJ_EX
      pop_several(2);
      push_object(cut(values_[pop()].text));
      return true;
    }
    case 'b':  // BUILD: what it would set is not looked at
      pop();
      top();
      return true;
    case 'Q':  // BINPERSID
      load_storage();
      return true;
    default:
      return false;
  }
}

void Machine::step() {
  const auto code = static_cast<std::uint8_t>(take_number(1));
  if (step_number(code) || step_text(code) || step_collection(code) || step_object(code)) return;
  switch (code) {
    case 0x80:  // PROTO
      if (take_number(1) > 5) broken("is of a newer protocol");
      return;
    case 0x95:  // FRAME
      take_number(8);
      return;
    case 'q':  // BINPUT
      return put(take_number(1));
    case 'r':  // LONG_BINPUT
      return put(take_number(4));
    case 0x94:  // MEMOIZE
      return put(memo_.size());
    case 'h':  // BINGET
      return get(take_number(1));
    case 'j':  // LONG_BINGET
      return get(take_number(4));
    case '0':  // POP
      pop();
      return;
    case '.':  // STOP
      done_ = true;
      return;
    default:
      --at_;
      broken(fmt::format("has the opcode 0x{:02x}, which state dicts do not need,", code));
  }
}

}  // namespace redline::weights::pickle
