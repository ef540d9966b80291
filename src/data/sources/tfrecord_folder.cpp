#include "data/sources/tfrecord_folder.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/machine.h"
#include "base/quantity.h"
#include "base/random_file.h"
#include "base/tfrecord.h"
#include "data/file.h"
#include "data/parallel.h"
#include "data/sources/class_list.h"
#include "data/sources/example.h"
#include "data/sources/gzip_shards.h"
#include "data/sources/pass_progress.h"
#include "data/sources/shard_names.h"

namespace redline::data {
namespace fs = std::filesystem;
namespace {

constexpr std::uint64_t kMaxRecord = std::uint64_t{1} << 30;  // a larger one is listed, and refused when read
constexpr std::int32_t kNoLabel = -1;
constexpr const char* kTfdsLabels = "label.labels.txt";

std::vector<RandomFile> open_shards(const fs::path& folder, const std::vector<std::string>& names) {
  std::vector<RandomFile> files;
  files.reserve(names.size());
  for (const std::string& name : names) files.emplace_back(folder / name);
  return files;
}

void refuse_gzip(const std::vector<RandomFile>& files) {
  for (const RandomFile& file : files)
    if (is_gzip(file))
      throw UsageError(
          "{} is compressed with gzip, which does not allow random access; 'redline data convert {} "
          "NEW-FOLDER --format tfrecord' decompresses it",
          file.path().string(), file.path().parent_path().string());
}

// What one shard holds.
struct ShardContent {
  std::vector<RecordIndex::Entry> entries;    // label as stored; kNoLabel where the record cannot be used
  std::map<std::int32_t, ClassTitle> titles;  // by stored label
  std::string damage;
};

// Called with the number of bytes read since the last call.
using ReadBytes = std::function<void(std::uint64_t)>;

// The label of a record, and the titles of its class; kNoLabel if it cannot be used.
std::int32_t note_label(std::span<const std::uint8_t> record, ShardContent& content) {
  const ImageExample example = parse_example(record);
  if (example.label < 0 || example.label > kMaxLabel) return kNoLabel;
  const auto label = static_cast<std::int32_t>(example.label);
  content.titles.try_emplace(label, ClassTitle{example.synset, example.text});
  return label;
}

ShardContent read_shard(const RandomFile& file, std::uint32_t container, const ReadBytes& done) {
  ShardContent content;
  content.damage = scan_records(file, kSmallImage, [&](const RecordFrame& frame, auto data) {
    RecordIndex::Entry entry{frame.offset, frame.size, container, kNoLabel};
    try {
      FileBytes memory;
      if (!data && frame.size > kSmallImage && frame.size <= kMaxRecord)
        data = read_record(file, frame, memory.room(frame.size));
      if (data) entry.label = note_label(*data, content);
    } catch (const DataError&) {
      // Found again, and named, when the sample is read.
    }
    content.entries.push_back(entry);
    done(frame.size);
  });
  return content;
}

std::uint64_t bytes_of(const std::vector<RandomFile>& files) {
  std::uint64_t sum = 0;
  for (const RandomFile& file : files) sum += file.size();
  return sum;
}

// The names that a file beside the shards gives the classes, by label.
std::optional<std::vector<std::string>> listed_classes(const fs::path& folder) {
  if (auto list = read_class_list(folder)) return list;
  std::error_code ignored;
  if (!fs::exists(folder / kTfdsLabels, ignored)) return {};
  try {
    return parse_class_list(read_text(folder / kTfdsLabels, 32 << 20));
  } catch (const Error& error) {
    throw DataError("{}: {}", (folder / kTfdsLabels).string(), error.what());
  }
}

RecordIndex build_index(const std::vector<RandomFile>& files, std::vector<RecordIndex::Container> containers,
                        const fs::path& folder, Split split, const SourceOptions& options) {
  log_info("indexing {} in {}; this is done once",
           counted(std::ssize(files), std::string(split_name(split)) + " shard"), folder.string());
  PassProgress progress(fmt::format("indexing {}", split_name(split)), bytes_of(files), options.stop);
  std::vector<ShardContent> contents(files.size());
  parallel_for(static_cast<std::int64_t>(files.size()), inspect_machine().cores_allowed,
               [&](std::int64_t shard, int) {
                 const auto i = static_cast<std::size_t>(shard);
                 contents[i] = read_shard(files[i], static_cast<std::uint32_t>(i),
                                          [&](std::uint64_t bytes) { progress.add(bytes); });
               });
  RecordIndex index;
  std::map<std::int32_t, ClassTitle> titles;
  for (ShardContent& content : contents) {
    titles.merge(content.titles);
    if (!content.damage.empty())
      index.damage.push_back(
          (folder / containers[static_cast<std::size_t>(&content - contents.data())].name).string() + ": " +
          content.damage + "; the rest of the shard is skipped");
  }
  if (titles.empty())
    throw DataError("no record in the {} shards of {} has an image and a label", split_name(split),
                    folder.string());
  index.first_label = titles.begin()->first == 0 ? 0 : 1;
  for (const ShardContent& content : contents)
    for (RecordIndex::Entry entry : content.entries) {
      entry.label = std::max(0, entry.label - index.first_label);
      index.entries.push_back(entry);
    }
  index.classes = name_classes(titles, index.first_label);
  index.containers = std::move(containers);
  return index;
}

RecordIndex index_of(const fs::path& folder, Split split, const std::vector<std::string>& names,
                     const std::vector<RandomFile>& files, const SourceOptions& options) {
  std::vector<RecordIndex::Container> containers;
  for (std::size_t i = 0; i < files.size(); ++i)
    containers.push_back({names[i], files[i].size(), files[i].modified_ns()});
  RecordIndex index;
  if (load_index(index_path(folder, split), containers, index)) return index;
  refuse_gzip(files);
  index = build_index(files, std::move(containers), folder, split, options);
  save_index(index_path(folder, split), index);
  return index;
}

class TfRecordFolder final : public RecordSource {
 public:
  TfRecordFolder(const fs::path& folder, Split split, const SourceOptions& options)
      : folder_(folder), options_(options) {
    const std::vector<std::string> names = shard_names(folder, split);
    if (names.empty())
      throw UsageError("{} has no {} shards, like {}", folder.string(), split_name(split),
                       shard_name(split, 0, 1));
    files_ = open_shards(folder, names);
    index_ = index_of(folder, split, names, files_, options);
    classes_ = index_.classes;
    // Train decides the classes; a class that val never shows must not move the others.
    if (const auto train =
            split == Split::val ? shard_names(folder, Split::train) : std::vector<std::string>{};
        !train.empty())
      follow(index_of(folder, Split::train, train, open_shards(folder, train), options));
    if (auto listed = listed_classes(folder)) {
      if (listed->size() < classes_.size())
        throw DataError("the list of classes in {} has {} of the {} that its records have labels for",
                        folder.string(), listed->size(), classes_.size());
      classes_ = std::move(*listed);
    }
    for (const RecordIndex::Entry& entry : index_.entries)
      if (static_cast<std::size_t>(entry.label) >= classes_.size())
        throw DataError("{} has the label {}, but its train shards have {} classes", folder.string(),
                        entry.label + index_.first_label, classes_.size());
    for (const std::string& damage : index_.damage) log_warning("{}", damage);
    for (const RandomFile& file : files_)
      if (file.size() == 0) log_warning("{} is empty", file.path().string());
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
  std::int64_t encoded_bytes(std::int64_t index) const override {
    return static_cast<std::int64_t>(entry(index).size);
  }

  std::span<const std::uint8_t> read(std::int64_t index, FileBytes& memory) const override {
    return checked(index, parse_image(record(index, memory))).encoded;
  }

  DetailedSample read_detailed(std::int64_t index, FileBytes& memory) const override {
    ImageExample found = checked(index, parse_example(record(index, memory)));
    // Only a plain name: it comes from the record, and may become a file's.
    return {found.encoded, fs::path(found.filename).filename().string(), std::move(found.text),
            std::move(found.boxes)};
  }

 private:
  // Takes over train's classes and what its labels count from.
  void follow(const RecordIndex& train) {
    const std::int32_t shift = index_.first_label - train.first_label;
    for (RecordIndex::Entry& entry : index_.entries) {
      entry.label += shift;
      if (entry.label < 0)
        throw DataError("{} has the label 0 in val, but its train shards count from 1", folder_.string());
    }
    index_.first_label = train.first_label;
    classes_ = train.classes;
  }

  std::span<const std::uint8_t> record(std::int64_t index, FileBytes& memory) const {
    const RecordIndex::Entry& e = entry(index);
    if (e.size > static_cast<std::uint64_t>(options_.max_bytes))
      throw DataError("{} bytes, more than the limit of {}", e.size, options_.max_bytes);
    return read_record(files_[e.container], {e.offset, e.size}, memory.room(e.size));
  }

  template <typename Example>
  Example checked(std::int64_t index, Example example) const {
    if (example.label != entry(index).label + index_.first_label)
      throw DataError("its label is {}; labels count from {}", example.label, index_.first_label);
    return example;
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

fs::path index_path(const fs::path& folder, Split split) {
  return folder / fmt::format(".redline-index-{}", split_name(split));
}

std::vector<std::string> name_classes(const std::map<std::int32_t, ClassTitle>& titles,
                                      std::int32_t first_label) {
  std::vector<std::string> names;
  std::map<std::string, int> uses;
  const std::int32_t last = titles.empty() ? first_label - 1 : titles.rbegin()->first;
  for (std::int32_t label = first_label; label <= last; ++label) {
    const auto found = titles.find(label);
    const ClassTitle title = found == titles.end() ? ClassTitle{} : found->second;
    const std::string& name = !title.synset.empty() ? title.synset : title.text;
    names.push_back(name.empty() ? std::to_string(label) : name);
    ++uses[names.back()];
  }
  // Two classes with the same name would be merged by code that only sees names.
  for (std::size_t i = 0; i < names.size(); ++i)
    if (uses[names[i]] > 1) names[i] += fmt::format("-{}", static_cast<std::int32_t>(i) + first_label);
  return names;
}

std::unique_ptr<RecordSource> open_tfrecord_folder(const fs::path& folder, Split split,
                                                   const SourceOptions& options) {
  return std::make_unique<TfRecordFolder>(folder, split, options);
}

}  // namespace redline::data
