#include "data/tfrecord_folder.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/machine.h"
#include "base/random_file.h"
#include "base/tfrecord.h"
#include "data/example.h"
#include "data/parallel.h"
#include "data/record_index.h"

namespace redline::data {
namespace fs = std::filesystem;
namespace {

const char* shard_prefix(Split split) { return split == Split::train ? "train" : "validation"; }

// shard and count of "<prefix>-NNNNN-of-MMMMM".
std::optional<std::pair<int, int>> parse_shard(std::string_view name, std::string_view prefix) {
  if (!name.starts_with(prefix)) return {};
  name.remove_prefix(prefix.size());
  int shard = -1, count = -1;
  if (name.size() < 15 || name.front() != '-') return {};
  const char* end = name.data() + name.size();
  const auto first = std::from_chars(name.data() + 1, end, shard);
  if (first.ec != std::errc{} || !std::string_view(first.ptr, end).starts_with("-of-")) return {};
  const auto second = std::from_chars(first.ptr + 4, end, count);
  if (second.ec != std::errc{} || second.ptr != end || shard < 0 || count < 1) return {};
  return std::pair{shard, count};
}

std::vector<RandomFile> open_shards(const fs::path& folder, const std::vector<std::string>& names) {
  std::vector<RandomFile> files;
  files.reserve(names.size());
  for (const std::string& name : names) files.emplace_back(folder / name);
  return files;
}

// What one shard holds.
struct ShardContent {
  std::vector<RecordIndex::Entry> entries;      // label as stored, from 1; 0 where the record cannot be used
  std::map<std::int32_t, std::string> synsets;  // by stored label
  std::string damage;
};

ShardContent read_shard(const RandomFile& file, std::uint32_t container) {
  ShardContent content;
  RecordList list = list_records(file);
  content.damage = std::move(list.damage);
  std::vector<std::uint8_t> scratch;
  for (const RecordFrame& frame : list.frames) {
    RecordIndex::Entry entry{frame.offset, frame.size, container, 0};
    try {
      const ImageExample example = parse_example(read_record(file, frame, scratch));
      if (example.label >= 1 && example.label <= 1'000'000) {
        entry.label = static_cast<std::int32_t>(example.label);
        content.synsets.try_emplace(entry.label, example.synset);
      }
    } catch (const DataError&) {
      // Found again, and named, when the sample is read.
    }
    content.entries.push_back(entry);
  }
  return content;
}

// Names of classes 1 .. count: the synset, or the number where records do not say.
std::vector<std::string> class_list(const std::map<std::int32_t, std::string>& synsets) {
  std::vector<std::string> classes;
  const std::int32_t count = synsets.empty() ? 0 : synsets.rbegin()->first;
  for (std::int32_t label = 1; label <= count; ++label) {
    const auto found = synsets.find(label);
    classes.push_back(found == synsets.end() || found->second.empty() ? std::to_string(label)
                                                                      : found->second);
  }
  return classes;
}

RecordIndex build_index(const std::vector<RandomFile>& files, std::vector<RecordIndex::Container> containers,
                        const fs::path& folder, Split split) {
  log_info("indexing {} {} shards in {}; this is done once", files.size(), split_name(split),
           folder.string());
  std::vector<ShardContent> contents(files.size());
  parallel_for(static_cast<std::int64_t>(files.size()), inspect_machine().cores_allowed,
               [&](std::int64_t shard, int) {
                 const auto i = static_cast<std::size_t>(shard);
                 contents[i] = read_shard(files[i], static_cast<std::uint32_t>(i));
               });
  RecordIndex index;
  std::map<std::int32_t, std::string> synsets;
  for (ShardContent& content : contents) {
    for (RecordIndex::Entry entry : content.entries) {
      entry.label = std::max(0, entry.label - 1);
      index.entries.push_back(entry);
    }
    synsets.merge(content.synsets);
    if (!content.damage.empty())
      index.damage.push_back(
          (folder / containers[static_cast<std::size_t>(&content - contents.data())].name).string() + ": " +
          content.damage + "; the rest of the shard is left out");
  }
  index.classes = class_list(synsets);
  index.containers = std::move(containers);
  if (index.classes.empty())
    throw DataError("no record in the {} shards of {} has an image and a label", split_name(split),
                    folder.string());
  return index;
}

RecordIndex index_of(const fs::path& folder, Split split, const std::vector<std::string>& names,
                     const std::vector<RandomFile>& files) {
  std::vector<RecordIndex::Container> containers;
  for (std::size_t i = 0; i < files.size(); ++i)
    containers.push_back({names[i], files[i].size(), files[i].modified_ns()});
  const fs::path kept = folder / fmt::format(".redline-index-{}", split_name(split));
  RecordIndex index;
  if (load_index(kept, containers, index)) return index;
  index = build_index(files, std::move(containers), folder, split);
  save_index(kept, index);
  return index;
}

class TfRecordFolder final : public RecordSource {
 public:
  TfRecordFolder(const fs::path& folder, Split split, const SourceOptions& options)
      : folder_(folder), options_(options) {
    const std::vector<std::string> names = shard_names(folder, split);
    if (names.empty())
      throw UsageError("{} has no {}-NNNNN-of-MMMMM files", folder.string(), shard_prefix(split));
    files_ = open_shards(folder, names);
    index_ = index_of(folder, split, names, files_);
    classes_ = index_.classes;
    // Train decides the classes; a class that val never shows must not move the others.
    if (const auto train =
            split == Split::val ? shard_names(folder, Split::train) : std::vector<std::string>{};
        !train.empty())
      classes_ = index_of(folder, Split::train, train, open_shards(folder, train)).classes;
    for (const RecordIndex::Entry& entry : index_.entries)
      if (static_cast<std::size_t>(entry.label) >= classes_.size())
        throw DataError("{} has the label {}, but its train shards have {} classes", folder.string(),
                        entry.label + 1, classes_.size());
    for (const std::string& damage : index_.damage) log_warning("{}", damage);
  }

  std::int64_t count() const override { return static_cast<std::int64_t>(index_.entries.size()); }
  std::int32_t label(std::int64_t index) const override { return entry(index).label; }
  std::string name(std::int64_t index) const override {
    const RecordIndex::Entry& e = entry(index);
    return fmt::format("{}, record at byte {}", (folder_ / index_.containers[e.container].name).string(),
                       e.offset);
  }
  const std::vector<std::string>& classes() const override { return classes_; }
  const char* kind() const override { return "TFRecord"; }
  std::vector<std::string> damage() const override { return index_.damage; }

  std::span<const std::uint8_t> read(std::int64_t index, std::vector<std::uint8_t>& scratch) const override {
    return example(index, scratch).encoded;
  }

  DetailedSample read_detailed(std::int64_t index, std::vector<std::uint8_t>& scratch) const override {
    ImageExample found = example(index, scratch);
    // Only a plain name: it comes from the record, and may become a file's.
    return {found.encoded, fs::path(found.filename).filename().string(), std::move(found.text),
            std::move(found.boxes)};
  }

 private:
  ImageExample example(std::int64_t index, std::vector<std::uint8_t>& scratch) const {
    const RecordIndex::Entry& e = entry(index);
    if (e.size > static_cast<std::uint64_t>(options_.max_bytes))
      throw DataError("{} bytes, more than the limit of {}", e.size, options_.max_bytes);
    ImageExample found = parse_example(read_record(files_[e.container], {e.offset, e.size}, scratch));
    if (found.label != e.label + 1) throw DataError("its label is {}; labels count from 1", found.label);
    return found;
  }

  const RecordIndex::Entry& entry(std::int64_t index) const {
    return index_.entries.at(static_cast<std::size_t>(index));
  }

  fs::path folder_;
  SourceOptions options_;
  std::vector<RandomFile> files_;
  RecordIndex index_;
  std::vector<std::string> classes_;
};

}  // namespace

std::string shard_name(Split split, int shard, int shards) {
  return fmt::format("{}-{:05}-of-{:05}", shard_prefix(split), shard, shards);
}

std::vector<std::string> shard_names(const fs::path& folder, Split split) {
  std::map<int, std::string> found;
  int count = 0;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    const auto shard = parse_shard(name, shard_prefix(split));
    if (!shard) continue;
    if (count != 0 && shard->second != count)
      throw DataError("{} mixes shards of {} and of {}; keep one set", folder.string(), count, shard->second);
    count = shard->second;
    found[shard->first] = name;
  }
  if (error) throw IoError("cannot list {}: {}", folder.string(), error.message());
  std::vector<std::string> names;
  for (int shard = 0; shard < count; ++shard) {
    if (!found.contains(shard))
      throw DataError("{} is missing; the set has {} of {} shards",
                      (folder / shard_name(split, shard, count)).string(), found.size(), count);
    names.push_back(found[shard]);
  }
  return names;
}

std::unique_ptr<RecordSource> open_tfrecord_folder(const fs::path& folder, Split split,
                                                   const SourceOptions& options) {
  return std::make_unique<TfRecordFolder>(folder, split, options);
}

}  // namespace redline::data
