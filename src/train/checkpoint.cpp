#include "train/checkpoint.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <string_view>

#include <unistd.h>

#include <fmt/ranges.h>

#include "base/atomic_file.h"
#include "base/crc32c.h"
#include "base/error.h"
#include "base/random_file.h"
#include "base/staging.h"
#include "weights/class_names.h"
#include "weights/safetensors.h"

namespace redline::train {
namespace fs = std::filesystem;
namespace {

constexpr const char* kStateFile = "state.json";
constexpr std::string_view kPrefix = "step-";
constexpr std::uintmax_t kMostStateBytes = 16 << 20;  // most of them names of classes

bool in_model_file(graph::TensorKind kind) {
  return kind == graph::TensorKind::parameter || kind == graph::TensorKind::statistic;
}

weights::Dimensions dimensions(const graph::Shape& shape) {
  weights::Dimensions found;
  for (int axis = 0; axis < shape.rank(); ++axis) found.push_back(shape[axis]);
  return found;
}

FileSum write_tensors(const fs::path& path, Snapshot& snapshot, bool model,
                      const weights::Metadata& metadata) {
  std::vector<weights::Entry> entries;
  for (const graph::Tensor& tensor : snapshot.tensors()) {
    if (in_model_file(tensor.kind) != model) continue;
    weights::Entry& entry = entries.emplace_back();
    entry.name = tensor.name;
    entry.shape = dimensions(tensor.shape);
  }
  weights::SafetensorsWriter writer(path, std::move(entries), metadata);
  for (const graph::Tensor& tensor : snapshot.tensors()) {
    if (in_model_file(tensor.kind) == model) writer.write(snapshot.values(tensor));
  }
  const auto written = writer.commit();
  return {path.filename().string(), written.bytes, written.crc32c};
}

void check_file(const fs::path& path, const FileSum& expected) {
  const RandomFile file(path);
  if (file.size() != expected.bytes)
    throw DataError("{} has {} bytes instead of {}", path.string(), file.size(), expected.bytes);
  std::vector<std::uint8_t> buffer(std::min<std::uint64_t>(expected.bytes, 4 << 20));
  std::uint32_t sum = 0;
  try {
    for (std::uint64_t at = 0; at < expected.bytes; at += buffer.size()) {
      const std::span<std::uint8_t> part(buffer.data(), std::min(buffer.size(), expected.bytes - at));
      file.read(at, part);
      sum = crc32c(part, sum);
    }
  } catch (const Error& reason) {
    throw IoError("cannot read {}: {}", path.string(), reason.what());
  }
  if (sum != expected.crc32c) {
    throw DataError("{} is damaged: its checksum is {:08x} instead of {:08x}", path.string(), sum,
                    expected.crc32c);
  }
}

CheckpointState read_state(const fs::path& path, std::vector<FileSum>& files) {
  const fs::path state_file = path / kStateFile;
  std::error_code error;
  if (fs::file_size(state_file, error) > kMostStateBytes && !error)
    throw DataError("{} is too large for the state of a checkpoint", state_file.string());
  try {
    return parse_state(read_file(state_file), files);
  } catch (const DataError& reason) {
    throw DataError("{} is damaged: {}", state_file.string(), reason.what());
  }
}

// Where the tensors of a checkpoint are.
class Tensors {
 public:
  explicit Tensors(const fs::path& folder)
      : files_{weights::SafetensorsReader(folder / kModelFile),
               weights::SafetensorsReader(folder / kOptimizerFile)} {
    for (const auto& file : files_) {
      for (const auto& entry : file.entries()) places_.emplace(entry.name, Place{&file, &entry});
    }
  }
  // Null when there is none of this name.
  const weights::Entry* find(const std::string& name) const {
    const auto found = places_.find(name);
    return found == places_.end() ? nullptr : found->second.entry;
  }
  void read(const std::string& name, std::span<float> values) const {
    const Place& place = places_.at(name);
    place.file->read(*place.entry, values);
  }
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& [name, place] : places_) all.push_back(name);
    return all;
  }

 private:
  struct Place {
    const weights::SafetensorsReader* file;
    const weights::Entry* entry;
  };
  std::array<weights::SafetensorsReader, 2> files_;
  std::map<std::string, Place> places_;
};

[[noreturn]] void refuse_shapes(const Checkpoint& checkpoint, std::vector<std::string> mismatches) {
  constexpr std::size_t kShown = 8;
  const std::size_t more = mismatches.size() - std::min(kShown, mismatches.size());
  mismatches.resize(mismatches.size() - more);
  throw UsageError("{} does not fit this model: {}{}", checkpoint.path.string(), fmt::join(mismatches, "; "),
                   more > 0 ? fmt::format("; and {} more", more) : "");
}

}  // namespace

Snapshot::Snapshot(backend::State& state) : copy_(state.make_copy()) {
  for (const std::string& name : state.names()) tensors_.push_back(state.tensor(name));
}

std::span<const float> Snapshot::values(const graph::Tensor& tensor) {
  values_.resize(static_cast<std::size_t>(tensor.shape.elements()));
  copy_->read(tensor.name, values_);
  return values_;
}

std::string checkpoint_name(std::int64_t step) { return fmt::format("{}{}", kPrefix, step); }

std::vector<std::int64_t> list_checkpoints(const fs::path& folder) {
  std::vector<std::int64_t> steps;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kPrefix)) continue;
    std::int64_t step = 0;
    std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), step);
    if (name == checkpoint_name(step)) steps.push_back(step);
  }
  std::ranges::sort(steps, std::greater());
  return steps;
}

std::uint64_t write_checkpoint(const fs::path& folder, Snapshot& snapshot, const CheckpointState& state) {
  StagingFolder staging(folder / checkpoint_name(state.progress.step));
  const Subject& subject = state.subject;
  weights::Metadata metadata = {{"format", "pt"},
                                {"model", subject.model},
                                {"classes", std::to_string(subject.classes)},
                                {"image_size", std::to_string(subject.image_size)},
                                {"step", std::to_string(state.progress.step)}};
  if (std::string names = weights::class_names_text(subject.class_names); !names.empty())
    metadata[weights::kClassNames] = std::move(names);
  const std::vector<FileSum> files = {
      write_tensors(staging.path() / kModelFile, snapshot, /*model=*/true, metadata),
      write_tensors(staging.path() / kOptimizerFile, snapshot, /*model=*/false, metadata)};
  const std::string text = state_text(state, files);
  write_file_atomically(staging.path() / kStateFile, text);
  staging.commit(Sync::yes);
  std::uint64_t bytes = text.size();
  for (const FileSum& file : files) bytes += file.bytes;
  return bytes;
}

void update_checkpoint(const fs::path& path, const CheckpointState& state) {
  std::vector<FileSum> files;
  parse_state(read_file(path / kStateFile), files);
  write_file_atomically(path / kStateFile, state_text(state, files));
}

void point(const fs::path& link, const std::string& target) {
  const fs::path beside =
      link.parent_path() / fmt::format(".{}.partial-{}", link.filename().string(), ::getpid());
  std::error_code error;
  fs::remove(beside, error);
  fs::create_directory_symlink(target, beside, error);
  if (!error) fs::rename(beside, link, error);
  if (error) throw IoError("cannot point {} to {}: {}", link.string(), target, error.message());
  sync_folder(link.parent_path());
}

CheckpointState read_state(const fs::path& path) {
  std::vector<FileSum> files;
  return read_state(path, files);
}

Checkpoint open_checkpoint(const fs::path& path) {
  std::vector<FileSum> files;
  Checkpoint found{path, read_state(path, files)};
  for (const char* name : {kModelFile, kOptimizerFile}) {
    const auto file = std::ranges::find(files, name, &FileSum::name);
    if (file == files.end()) throw DataError("{} does not list {}", (path / kStateFile).string(), name);
    check_file(path / name, *file);
  }
  return found;
}

std::vector<std::string> restore(const Checkpoint& checkpoint, backend::State& state) {
  const Tensors tensors(checkpoint.path);
  std::vector<std::string> mismatches;
  for (const std::string& name : state.names()) {
    const graph::Tensor& tensor = state.tensor(name);
    const weights::Entry* entry = tensors.find(name);
    if (entry == nullptr) {
      if (in_model_file(tensor.kind)) mismatches.push_back(fmt::format("it has no {}", name));
      continue;
    }
    if (entry->shape != dimensions(tensor.shape)) {
      mismatches.push_back(fmt::format("{} is {} there and {} here", name, weights::text_of(entry->shape),
                                       tensor.shape.text()));
    }
  }
  if (!mismatches.empty()) refuse_shapes(checkpoint, std::move(mismatches));

  std::vector<float> values;
  std::vector<std::string> notes;
  bool new_averages = false, new_optimizer = false;
  for (const std::string& name : state.names()) {
    const graph::Tensor& tensor = state.tensor(name);
    std::string from = name;
    if (tensors.find(name) == nullptr) {
      if (tensor.kind != graph::TensorKind::average) {
        new_optimizer = true;  // stays as the state made it
        continue;
      }
      new_averages = true;
      from = name.substr(0, name.rfind('.'));
    }
    values.resize(static_cast<std::size_t>(tensor.shape.elements()));
    tensors.read(from, values);
    state.write(name, values);
  }
  if (new_averages) notes.emplace_back("it has no moving averages: they start from the weights");
  if (new_optimizer) notes.emplace_back("some of the optimizer's state is missing and starts afresh");
  const auto known = state.names();
  const bool unused = std::ranges::any_of(tensors.names(), [&](const std::string& name) {
    return std::ranges::find(known, name) == known.end();
  });
  if (unused) notes.emplace_back("it has averages or optimizer state that this run does not use");
  return notes;
}

}  // namespace redline::train
