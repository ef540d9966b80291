#include "data/prepare/unpack.h"

#include <algorithm>
#include <atomic>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/atomic_file.h"
#include "base/error.h"
#include "data/bad_limit.h"
#include "data/file.h"
#include "data/images/codecs.h"
#include "data/parallel.h"
#include "data/prepare/bad_images.h"
#include "data/prepare/disk_space.h"
#include "data/prepare/manifest.h"
#include "data/sources/class_list.h"
#include "data/sources/class_words.h"
#include "data/sources/image_folder.h"

namespace redline::data {
namespace fs = std::filesystem;
namespace {

constexpr const char* kNote = "prepare.json";

std::vector<SplitSource> open_splits(const UnpackOptions& o) {
  std::vector<SplitSource> splits;
  for (const Split split : {Split::train, Split::val})
    if (has_split(o.source, split))
      splits.push_back({split, open_source(o.source, split, o.limits_of_source)});
  return splits;
}

std::string note_text(const UnpackOptions& o, const std::vector<SplitSource>& splits) {
  nlohmann::ordered_json json{
      {"schema", 1}, {"limits", {{"pixels", o.limits.max_pixels}, {"bytes", o.limits_of_source.max_bytes}}}};
  for (const SplitSource& s : splits)
    json["splits"][split_name(s.split)] = {{"images", s.source->count()}, {"names", fingerprint(*s.source)}};
  json["classes"] = splits.front().source->classes();
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

// The classes of a split that have images.
std::vector<bool> used_classes(const RecordSource& source) {
  std::vector<bool> used(source.classes().size(), false);
  for (std::int64_t i = 0; i < source.count(); ++i) used[static_cast<std::size_t>(source.label(i))] = true;
  return used;
}

void make_class_folders(const fs::path& target, const std::vector<SplitSource>& splits) {
  for (const SplitSource& s : splits) {
    const std::vector<bool> used = used_classes(*s.source);
    for (std::size_t label = 0; label < used.size(); ++label) {
      if (!used[label]) continue;  // an image folder has no class folder without images
      const fs::path folder = target / split_name(s.split) / s.source->classes()[label];
      std::error_code error;
      fs::create_directories(folder, error);
      if (error) throw IoError("cannot create the folder {}: {}", folder.string(), error.message());
      remove_partials(folder);
    }
  }
}

void check_class_names(const std::vector<std::string>& classes, const fs::path& source) {
  std::set<std::string> seen;
  for (const std::string& name : classes) {
    if (!is_plain_name(name))
      throw DataError("the class '{}' cannot be the name of a folder; list other names in {}",
                      name.substr(0, 200), (source / kClassesFile).string());
    if (!seen.insert(name).second)
      throw DataError(
          "two classes are called '{}', which would become one folder; convert to TFRecord instead", name);
  }
}

// Folders are numbered by name; where labels are not, a file says so.
void write_class_order(const fs::path& target, const SplitSource& first) {
  const std::vector<std::string>& classes = first.source->classes();
  if (!folders_keep_order(classes, used_classes(*first.source)))
    write_file_atomically(target / kClassesFile, class_list_text(classes), Sync::no);
}

void announce(const fs::path& target, const std::vector<SplitSource>& splits) {
  const std::int64_t block = disk_space(target).block;
  std::int64_t sum = 0;
  for (const SplitSource& s : splits) {
    const std::int64_t bytes = image_bytes(*s.source, block, 0);
    if (bytes < 0) return;
    sum += bytes;
  }
  announce_disk(target, sum);
}

std::int64_t images_of(const std::vector<SplitSource>& splits) {
  std::int64_t images = 0;
  for (const SplitSource& s : splits) images += s.source->count();
  return images;
}

class Unpacker {
 public:
  Unpacker(const UnpackOptions& options, const std::vector<SplitSource>& splits)
      : options_(options),
        splits_(splits),
        images_(images_of(splits)),
        bad_(options.max_bad, images_),
        words_(splits.front().source->classes().size()) {
    benches_.resize(static_cast<std::size_t>(std::max(1, options.threads)));
    for (Bench& bench : benches_) bench.decoder = std::make_unique<Decoder>(options.limits);
  }

  UnpackResult run(const Progress& progress) {
    std::int64_t shown = 0;
    parallel_for(
        images_, options_.threads, [&](std::int64_t item, int worker) { unpack(item, worker); },
        [&](std::int64_t done, std::int64_t) {
          shown = std::max(shown, done - clashing_);
          return !progress || progress(shown, images_);
        });
    const std::vector<Named> rest = name_apart();
    const std::int64_t before = images_ - std::ssize(rest);
    parallel_for(
        std::ssize(rest), options_.threads,
        [&](std::int64_t i, int worker) {
          const Named& one = rest[static_cast<std::size_t>(i)];
          unpack(one.item, worker, &one.path);
        },
        [&](std::int64_t done, std::int64_t) { return !progress || progress(before + done, images_); });
    return finish();
  }

  // The classes' words, by label.
  const std::vector<std::string>& words() const { return words_; }

 private:
  // One thread's tools.
  struct Bench {
    std::unique_ptr<Decoder> decoder;
    std::vector<std::uint8_t> scratch;
  };
  // Samples have numbers over all splits.
  struct Named {
    std::int64_t item;
    fs::path path;
  };

  // Without a path, the file is called as in the source; it is left for later if another sample has that
  // name.
  void unpack(std::int64_t item, int worker, const fs::path* path = nullptr) {
    Bench& bench = benches_[static_cast<std::size_t>(worker)];
    const auto [split, sample] = place_of(item);
    const RecordSource& source = *split->source;
    FileBytes memory(bench.scratch);
    DetailedSample found;
    try {
      found = source.read_detailed(sample, memory);
      const ImageInfo info = bench.decoder->open(found.bytes);
      bench.decoder->examine();
      if (!is_plain_name(found.file_name) || !is_image_name(found.file_name))
        found.file_name = fmt::format("{:08}.{}", sample, usual_ending(info.format));
    } catch (const Error& error) {
      if (error.code() != ExitCode::bad_data && error.code() != ExitCode::io) throw;
      bad_.note(item, {source.name(sample), error.what()}, error.code());
      return;
    }
    const auto label = static_cast<std::size_t>(source.label(sample));
    note_words(label, found.class_text);
    const fs::path usual =
        options_.target / split_name(split->split) / source.classes()[label] / found.file_name;
    if (!path && !claim(usual.string(), item)) return;
    const fs::path& to = path ? *path : usual;
    const bool there = has_content(to, found.bytes);
    if (!there) put(to, found.bytes);
    if (!path || to != usual) found_ += there;  // else the sample that claimed the path was counted
  }

  std::pair<const SplitSource*, std::int64_t> place_of(std::int64_t item) const {
    const std::int64_t first = splits_.front().source->count();
    return item < first ? std::pair(&splits_.front(), item) : std::pair(&splits_.back(), item - first);
  }

  bool claim(const std::string& path, std::int64_t item) {
    const std::lock_guard lock(mutex_);
    if (owners_.try_emplace(path, item).second) return true;
    clashes_[path].push_back(item);
    ++clashing_;
    return false;
  }

  // The samples whose names clashed, with the paths they get: the same whatever the threads' timing, so that
  // the work can be interrupted and repeated. A sample that was written to its path already is not among
  // them.
  std::vector<Named> name_apart() {
    std::vector<Named> rest;
    for (auto& [usual, items] : clashes_) {
      const std::int64_t owner = owners_.at(usual);
      items.push_back(owner);
      std::ranges::sort(items);
      if (items.front() != owner) rest.push_back({items.front(), usual});
      int number = 2;
      for (const std::int64_t item : std::span(items).subspan(1)) {
        fs::path path;
        do path = numbered(usual, number++);
        while (!owners_.try_emplace(path.string(), item).second);
        const auto [split, sample] = place_of(item);
        renamed_.push_back({split->source->name(sample), path});
        rest.push_back({item, std::move(path)});
      }
    }
    return rest;
  }

  static fs::path numbered(const fs::path& path, int number) {
    return path.parent_path() /
           fmt::format("{}-{}{}", path.stem().string(), number, path.extension().string());
  }

  static void put(const fs::path& path, std::span<const std::uint8_t> bytes) {
    AtomicFile file(path, Sync::no);
    file.write(std::as_bytes(bytes));
    file.commit();
  }

  // Records of one class should agree; if they do not, the smallest text is used, whatever the threads'
  // timing.
  void note_words(std::size_t label, const std::string& text) {
    if (text.empty()) return;
    const std::lock_guard lock(mutex_);
    if (words_[label].empty() || text < words_[label]) words_[label] = text;
  }

  UnpackResult finish() {
    UnpackResult result;
    result.written = std::ssize(owners_) - found_;
    result.found = found_;
    result.renamed = std::move(renamed_);
    result.bad = bad_.list();
    for (const SplitSource& s : splits_)
      for (std::string& part : s.source->damage()) result.damage.push_back(std::move(part));
    return result;
  }

  const UnpackOptions& options_;
  const std::vector<SplitSource>& splits_;
  const std::int64_t images_;
  BadImages bad_;
  std::vector<Bench> benches_;
  std::atomic<std::int64_t> found_ = 0;
  std::mutex mutex_;
  std::unordered_map<std::string, std::int64_t> owners_;      // by path, the sample that is written there
  std::map<std::string, std::vector<std::int64_t>> clashes_;  // by path, the others that would be
  std::atomic<std::int64_t> clashing_ = 0;                    // all of them
  std::vector<Renamed> renamed_;
  std::vector<std::string> words_;
};

}  // namespace

UnpackResult unpack_to_folders(const UnpackOptions& options, const std::vector<SplitSource>& splits,
                               const Progress& progress) {
  check(!splits.empty() && splits.size() <= 2, "a data set of {} splits", splits.size());
  const std::vector<std::string>& classes = splits.front().source->classes();
  check_class_names(classes, options.source);
  announce(options.target, splits);
  const std::unique_ptr<FolderLock> lock = claim_folder(options.target, kNote, note_text(options, splits));
  make_class_folders(options.target, splits);
  write_class_order(options.target, splits.front());
  Unpacker unpacker(options, splits);
  UnpackResult result = unpacker.run(progress);
  if (const std::string words = words_text(classes, unpacker.words()); !words.empty())
    write_file_atomically(options.target / kWordsFile, words, Sync::no);
  finish_folder(options.target);
  return result;
}

UnpackResult unpack_to_folders(const UnpackOptions& options, const Progress& progress) {
  bad_limit(options.max_bad, 0);
  require_target(options.source, options.target);
  UnpackResult result = unpack_to_folders(options, open_splits(options), progress);
  result.unused = unused_in(options.source);
  return result;
}

}  // namespace redline::data
