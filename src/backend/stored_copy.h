// Common to copies of a State in any memory: tensors side by side, as the backend stores them. read()
// converts to plain order.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>

#include "backend/backend.h"
#include "plan/layout.h"

namespace redline::backend {

// `Memory` is made from a number of bytes and has data(). Derived classes have take().
template <typename Memory>
class StoredCopy : public StateCopy {
 public:
  void read(const std::string& name, std::span<float> values) const override {
    const Item& item = items_.at(name);
    plan::load(item.tensor, item.layout, memory_.data() + item.offset, values);
  }

 protected:
  struct Item {
    graph::Tensor tensor;
    plan::Layout layout = plan::Layout::plain;
    const std::byte* source = nullptr;
    std::size_t bytes = 0;
    std::size_t offset = 0;  // in the copy
  };

  // By name; each entry has tensor, layout and memory, which stay where they are.
  template <typename Entries>
  explicit StoredCopy(const Entries& entries) {
    std::size_t bytes = 0;
    for (const auto& [name, entry] : entries) {
      items_[name] = {entry.tensor, entry.layout, entry.memory.data(), entry.memory.size(), bytes};
      bytes += entry.memory.size();
    }
    memory_ = Memory(bytes);
  }

  const std::map<std::string, Item>& items() const { return items_; }
  std::byte* target(const Item& item) const { return memory_.data() + item.offset; }
  const Memory& memory() const { return memory_; }

 private:
  std::map<std::string, Item> items_;
  Memory memory_;
};

}  // namespace redline::backend
