// Pickles written opcode by opcode, as torch.save or a stranger would write them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace redline::weights {

class Pickle {
 public:
  Pickle() { text_ = "\x80\x02"; }
  Pickle& raw(const std::string& bytes) {
    text_ += bytes;
    return *this;
  }
  Pickle& text(const std::string& value) {
    text_ += 'X';
    for (int i = 0; i < 4; ++i) text_ += static_cast<char>(value.size() >> (8 * i));
    return raw(value);
  }
  Pickle& number(std::int32_t value) {
    text_ += 'J';
    for (int i = 0; i < 4; ++i) text_ += static_cast<char>(static_cast<std::uint32_t>(value) >> (8 * i));
    return *this;
  }
  Pickle& global(const std::string& module, const std::string& name) {
    return raw("c" + module + "\n" + name + "\n");
  }
  Pickle& numbers(const std::vector<std::int32_t>& values) {
    raw("(");
    for (const std::int32_t value : values) number(value);
    return raw("t");
  }
  Pickle& storage(const std::string& type, const std::string& key, std::int32_t elements) {
    raw("(").text("storage").global("torch", type).text(key).text("cpu").number(elements);
    return raw("tQ");
  }
  // A view of a storage of its own.
  Pickle& tensor(const std::string& key, std::int32_t elements, std::int32_t offset,
                 const std::vector<std::int32_t>& shape, const std::vector<std::int32_t>& strides,
                 const std::string& type = "FloatStorage") {
    global("torch._utils", "_rebuild_tensor_v2").raw("(").storage(type, key, elements).number(offset);
    numbers(shape).numbers(strides);
    return raw("\x89").global("collections", "OrderedDict").raw(")RtR");
  }
  Pickle& dict() { return global("collections", "OrderedDict").raw(")R"); }
  std::string done() const { return text_ + "."; }

 private:
  std::string text_;
};

}  // namespace redline::weights
