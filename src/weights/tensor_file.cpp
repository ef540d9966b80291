#include "weights/tensor_file.h"

#include <algorithm>
#include <array>
#include <set>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/random_file.h"
#include "graph/half.h"
#include "weights/pytorch.h"
#include "weights/safetensors.h"

namespace redline::weights {
namespace {

template <typename Stored, typename Convert>
void convert_all(std::span<float> values, const Convert& convert, const auto& fill) {
  std::vector<Stored> chunk(std::min(kChunk, values.size()));
  for (std::size_t at = 0; at < values.size(); at += kChunk) {
    const std::span<Stored> part(chunk.data(), std::min(kChunk, values.size() - at));
    fill(at * sizeof(Stored), std::as_writable_bytes(part));
    std::ranges::transform(part, values.begin() + static_cast<std::ptrdiff_t>(at), convert);
  }
}

std::string unwrapped(std::string_view name) {
  constexpr std::array<std::string_view, 3> kWrappers = {"module.", "_orig_mod.", "model."};
  const auto wrapper = [&] {
    return std::ranges::find_if(kWrappers, [&](std::string_view one) { return name.starts_with(one); });
  };
  for (auto found = wrapper(); found != kWrappers.end(); found = wrapper()) name.remove_prefix(found->size());
  return std::string(name);
}

}  // namespace

const Entry* TensorFile::find(const std::string& name) const {
  const auto found = std::ranges::find(entries_, name, &Entry::name);
  return found == entries_.end() ? nullptr : &*found;
}

void TensorFile::take(std::vector<Entry> entries, Metadata metadata) {
  entries_ = std::move(entries);
  metadata_ = std::move(metadata);
  std::set<std::string> names;
  for (const Entry& entry : entries_) names.insert(unwrapped(entry.name));
  if (names.size() != entries_.size()) return;  // two networks in one file: told apart by what wraps them
  for (Entry& entry : entries_) entry.name = unwrapped(entry.name);
}

void TensorFile::read_floats(const Entry& entry, std::span<float> values, const Fill& fill) const {
  switch (entry.type) {
    case ElementType::f32:
      return fill(0, std::as_writable_bytes(values));
    case ElementType::f16:
      return convert_all<std::uint16_t>(values, graph::f16_to_float, fill);
    case ElementType::bf16:
      return convert_all<std::uint16_t>(values, graph::bf16_to_float, fill);
    case ElementType::f64:
      return convert_all<double>(
          values, [](double value) { return static_cast<float>(value); }, fill);
    default:
      throw DataError("{}: '{}' holds {}, where floating-point numbers are needed", path().string(),
                      entry.name, name_of(entry.type));
  }
}

std::unique_ptr<TensorFile> open_tensors(const std::filesystem::path& path) {
  const RandomFile file(path);
  if (is_pytorch(file)) return std::make_unique<PytorchReader>(path);
  std::array<std::uint8_t, 9> first{};  // of safetensors: the length of a header, and its brace
  if (file.size() >= first.size()) file.read(0, first);
  if (first.back() != '{' && path.extension() != ".safetensors")
    throw DataError("{} is neither safetensors nor a .pth file of torch.save{}", path.string(),
                    path.extension() == ".onnx" ? ": ONNX is written, not read" : "");
  return std::make_unique<SafetensorsReader>(path);
}

}  // namespace redline::weights
