// Common to States in any memory: tensors by name, as the backend stores them.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "base/error.h"
#include "plan/layout.h"

namespace redline::backend {

// `Memory` is made from a number of bytes, zero-filled, and has data() and size().
template <typename Memory>
struct StateEntry {
  graph::Tensor tensor;
  plan::Layout layout = plan::Layout::plain;
  Memory memory;
};

// `Entry` is a StateEntry, or has more. Derived classes have read(), write(), swap() and make_copy().
template <typename Entry>
class StoredState : public State {
 public:
  std::vector<std::string> names() const override { return order_; }
  const graph::Tensor& tensor(const std::string& name) const override { return entry(name).tensor; }

  // The tensor's memory, filled with its initial value if new. It stays at its address for the lifetime of
  // the state.
  std::byte* memory(const graph::Tensor& tensor, plan::Layout layout) {
    const auto [it, added] = entries_.try_emplace(tensor.name);
    Entry& found = it->second;
    if (added) {
      found.tensor = tensor;
      found.layout = layout;
      found.memory = decltype(found.memory)(plan::stored_bytes(tensor, layout));
      order_.push_back(tensor.name);
      if (tensor.fill != 0.0F)
        write(tensor.name,
              std::vector<float>(static_cast<std::size_t>(tensor.shape.elements()), tensor.fill));
    }
    const graph::Tensor& known = found.tensor;
    check(known.shape == tensor.shape && known.dtype == tensor.dtype && found.layout == layout,
          "'{}' is {} {} {} in the state and {} {} {} in the plan", tensor.name, known.shape.text(),
          name_of(known.dtype), name_of(found.layout), tensor.shape.text(), name_of(tensor.dtype),
          name_of(layout));
    return found.memory.data();
  }

  std::size_t bytes() const {
    std::size_t sum = 0;
    for (const auto& [name, held] : entries_) sum += held.memory.size();
    return sum;
  }

 protected:
  const std::map<std::string, Entry>& entries() const { return entries_; }
  const Entry& entry(const std::string& name) const { return find(entries_, name); }
  Entry& entry(const std::string& name) { return find(entries_, name); }
  // Two tensors that are stored alike.
  std::pair<Entry*, Entry*> same_form(const std::string& first, const std::string& second) {
    Entry &a = entry(first), &b = entry(second);
    check(a.tensor.shape == b.tensor.shape && a.tensor.dtype == b.tensor.dtype && a.layout == b.layout,
          "'{}' and '{}' are not stored alike", first, second);
    return {&a, &b};
  }

 private:
  static auto& find(auto& entries, const std::string& name) {
    const auto it = entries.find(name);
    check(it != entries.end(), "the state has no tensor '{}'", name);
    return it->second;
  }

  std::map<std::string, Entry> entries_;
  std::vector<std::string> order_;
};

}  // namespace redline::backend
