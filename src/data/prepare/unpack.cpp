#include "data/prepare/unpack.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unordered_set>

#include <nlohmann/json.hpp>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/printable.h"
#include "data/bad_limit.h"
#include "data/file.h"
#include "data/images/codecs.h"
#include "data/parallel.h"
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

class Unpacker {
 public:
  Unpacker(const UnpackOptions& options, std::int64_t images, std::size_t classes)
      : options_(options), images_(images), words_(classes) {
    max_bad_ = bad_limit(options.max_bad, images);
    benches_.resize(static_cast<std::size_t>(std::max(1, options.threads)));
    for (Bench& bench : benches_) bench.decoder = std::make_unique<Decoder>(options.limits);
  }

  // item: the sample's number over all splits, by which the bad ones are put in order.
  void run(const SplitSource& from, std::int64_t sample, std::int64_t item, int worker) {
    Bench& bench = benches_[static_cast<std::size_t>(worker)];
    DetailedSample found;
    try {
      found = from.source->read_detailed(sample, bench.scratch);
      const ImageInfo info = bench.decoder->open(found.bytes);
      bench.decoder->examine();
      if (!is_plain_name(found.file_name) || !is_image_name(found.file_name))
        found.file_name = fmt::format("{:08}.{}", sample, usual_ending(info.format));
    } catch (const Error& error) {
      if (error.code() != ExitCode::bad_data && error.code() != ExitCode::io) throw;
      note_bad(item, {from.source->name(sample), error.what()});
      return;
    }
    const auto label = static_cast<std::size_t>(from.source->label(sample));
    const std::string& name = from.source->classes()[label];
    note_words(label, found.class_text);
    put(options_.target / split_name(from.split) / name / found.file_name, found.bytes, bench);
  }

  // The classes' words, by label.
  const std::vector<std::string>& words() const { return words_; }

  UnpackResult finish() {
    std::sort(bad_.begin(), bad_.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    UnpackResult result{written_, found_, {}, {}};
    for (auto& [item, complaint] : bad_) result.bad.push_back(std::move(complaint));
    return result;
  }

 private:
  // One thread's tools.
  struct Bench {
    std::unique_ptr<Decoder> decoder;
    std::vector<std::uint8_t> scratch, old;
  };

  void put(const fs::path& path, std::span<const std::uint8_t> bytes, Bench& bench) {
    {
      const std::lock_guard lock(mutex_);
      if (!names_.insert(path.string()).second)
        throw DataError("two samples would become {}; convert to TFRecord instead", path.string());
    }
    std::error_code error;
    if (fs::file_size(path, error) == bytes.size() && !error) {
      const std::span<const std::uint8_t> old =
          read_whole(path, options_.limits_of_source.max_bytes, bench.old);
      if (std::equal(old.begin(), old.end(), bytes.begin(), bytes.end())) {
        ++found_;
        return;
      }
    }
    AtomicFile file(path, Sync::no);
    file.write(std::as_bytes(bytes));
    file.commit();
    ++written_;
  }

  // Records of one class should agree; if they do not, the smallest text is used, whatever the threads'
  // timing.
  void note_words(std::size_t label, const std::string& text) {
    if (text.empty()) return;
    const std::lock_guard lock(mutex_);
    if (words_[label].empty() || text < words_[label]) words_[label] = text;
  }

  void note_bad(std::int64_t item, Complaint complaint) {
    const std::lock_guard lock(mutex_);
    if (static_cast<std::int64_t>(bad_.size()) >= max_bad_)
      throw DataError(
          "{} of {} images are bad, more than the {} that --max-bad {} allows; the last was {}: {}. 'redline "
          "data verify' lists them",
          bad_.size() + 1, images_, max_bad_, options_.max_bad, printable(complaint.name), complaint.reason);
    bad_.emplace_back(item, std::move(complaint));
  }

  const UnpackOptions& options_;
  const std::int64_t images_;
  std::int64_t max_bad_ = 0;
  std::vector<Bench> benches_;
  std::atomic<std::int64_t> written_ = 0, found_ = 0;
  std::mutex mutex_;
  std::unordered_set<std::string> names_;
  std::vector<std::string> words_;
  std::vector<std::pair<std::int64_t, Complaint>> bad_;
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
  std::int64_t images = 0;
  for (const SplitSource& s : splits) images += s.source->count();
  Unpacker unpacker(options, images, classes.size());
  const std::int64_t first = splits.front().source->count();
  parallel_for(
      images, options.threads,
      [&](std::int64_t item, int worker) {
        const SplitSource& from = item < first ? splits.front() : splits.back();
        unpacker.run(from, item < first ? item : item - first, item, worker);
      },
      progress);
  if (const std::string words = words_text(classes, unpacker.words()); !words.empty())
    write_file_atomically(options.target / kWordsFile, words, Sync::no);
  finish_folder(options.target);
  return unpacker.finish();
}

UnpackResult unpack_to_folders(const UnpackOptions& options, const Progress& progress) {
  UnpackResult result = unpack_to_folders(options, open_splits(options), progress);
  result.unused = unused_in(options.source);
  return result;
}

}  // namespace redline::data
