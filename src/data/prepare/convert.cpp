#include "data/prepare/convert.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/log.h"
#include "base/random.h"
#include "base/tfrecord.h"
#include "data/bad_limit.h"
#include "data/images/decode_memory.h"
#include "data/images/encode.h"
#include "data/parallel.h"
#include "data/prepare/bad_images.h"
#include "data/prepare/disk_space.h"
#include "data/prepare/manifest.h"
#include "data/sources/boxes.h"
#include "data/sources/class_list.h"
#include "data/sources/example.h"
#include "data/sources/file_list.h"
#include "data/sources/gzip_shards.h"
#include "data/sources/ilsvrc.h"
#include "data/sources/record_index.h"
#include "data/sources/shard_names.h"
#include "data/sources/tfrecord_folder.h"

namespace redline::data {
namespace fs = std::filesystem;
namespace {

constexpr std::uint64_t kConvertStream = 0x636f6e76;
constexpr int kQuality = 95;             // of re-encoded images: hardly to be told from the original
constexpr std::int32_t kFirstLabel = 1;  // in records, as ImageNet's have it
constexpr const char* kManifest = "convert.json";

struct SplitWork {
  Split split;
  std::unique_ptr<RecordSource> source;
  std::vector<std::uint32_t> order;  // samples as they are dealt to shards
  int shards;
};

struct ShardTask {
  const SplitWork* split;
  int shard;

  std::int64_t begin() const {
    return static_cast<std::int64_t>(split->order.size()) * shard / split->shards;
  }
  std::int64_t end() const {
    return static_cast<std::int64_t>(split->order.size()) * (shard + 1) / split->shards;
  }
};

void validate(const ConvertOptions& o) {
  bad_limit(o.max_bad, 0);
  for (const std::optional<int>& shards : {o.train_shards, o.val_shards})
    if (shards && (*shards < 1 || *shards > 99'999))
      throw UsageError("{} shards: the number must be from 1 to 99999", *shards);
}

int default_shards(Split split, std::int64_t images) {
  constexpr std::int64_t kImagesOfShard = 100;
  return static_cast<int>(
      std::clamp<std::int64_t>(images / kImagesOfShard, 1, split == Split::train ? 1024 : 128));
}

std::vector<SplitWork> open_splits(const ConvertOptions& o) {
  std::vector<SplitWork> splits;
  for (const Split split : {Split::train, Split::val}) {
    if (!has_split(o.source, split)) continue;
    SplitWork work{split, open_source(o.source, split, o.limits_of_source), {}, 0};
    work.shards = (split == Split::train ? o.train_shards : o.val_shards)
                      .value_or(default_shards(split, work.source->count()));
    if (work.source->count() < work.shards)
      throw UsageError("{} {} images do not fill {} shards; give fewer --{}-shards", work.source->count(),
                       split_name(split), work.shards, split_name(split));
    work.order.resize(static_cast<std::size_t>(work.source->count()));
    std::iota(work.order.begin(), work.order.end(), 0u);
    Random(o.seed, mix(kConvertStream, static_cast<std::uint64_t>(split))).shuffle(work.order);
    splits.push_back(std::move(work));
  }
  return splits;
}

// Whether some images, by their names, will be encoded anew: to which size is not known.
bool changes_sizes(const RecordSource& source) {
  constexpr std::int64_t kSample = 10'000;
  const std::int64_t asked = std::min(source.count(), kSample);
  for (std::int64_t k = 0; k < asked; ++k)
    if (const ImageFormat format = format_of_name(source.name(k * source.count() / asked));
        format != ImageFormat::jpeg && format != ImageFormat::png)
      return true;
  return false;
}

void announce(const fs::path& target, const std::vector<SplitWork>& splits) {
  constexpr std::int64_t kRecordExtra = 600;  // the fields beside the image
  std::int64_t sum = 0;
  for (const SplitWork& work : splits) {
    if (changes_sizes(*work.source)) return;
    const std::int64_t bytes = image_bytes(*work.source, 1, kRecordExtra);
    if (bytes < 0) return;
    sum += bytes;
  }
  announce_disk(target, sum);
}

// What the shards depend on: a call with another source or other options must not mix with these.
std::string manifest_text(const ConvertOptions& o, const std::vector<SplitWork>& splits,
                          const BoxTable* boxes) {
  nlohmann::ordered_json json{
      {"schema", 2},
      {"seed", o.seed},
      {"limits", {{"pixels", o.limits.max_pixels}, {"bytes", o.limits_of_source.max_bytes}}}};
  if (boxes) json["boxes"] = boxes->fingerprint();
  for (const SplitWork& work : splits) {
    json["splits"][split_name(work.split)] = {
        {"images", work.source->count()}, {"shards", work.shards}, {"names", fingerprint(*work.source)}};
  }
  json["classes"] = splits.front().source->classes();
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

// A record of a shard, as the index has it.
struct IndexedRecord {
  RecordFrame frame;
  std::int32_t label = 0;
};

struct WholeShard {
  std::vector<IndexedRecord> records;
  std::vector<std::string> files;  // that they were made of; empty when no image was left out
};

// An existing, complete shard for this many images; none if it has to be written.
std::optional<WholeShard> whole_shard(const fs::path& path, std::int64_t images) {
  const fs::path index = path.string() + ".idx";
  if (!fs::exists(path) || !fs::exists(index)) return {};
  try {
    const RandomFile file(path);
    const std::vector<RecordFrame> frames = read_index(index, file.size());
    const bool complete = static_cast<std::int64_t>(frames.size()) == images;
    WholeShard shard;
    std::vector<std::uint8_t> scratch;
    for (const RecordFrame& frame : frames) {
      FileBytes memory(scratch);
      ImageExample example = parse_example(read_record(file, frame, memory.room(frame.size)));
      shard.records.push_back({frame, static_cast<std::int32_t>(example.label) - kFirstLabel});
      if (!complete) shard.files.push_back(std::move(example.filename));
    }
    return shard;
  } catch (const Error&) {
    return {};
  }
}

// One thread's tools.
struct Bench {
  std::unique_ptr<Decoder> decoder;
  std::vector<std::uint8_t> scratch;
};

// Annotation files that were given, or that are next to ImageNet's tars; none otherwise.
std::unique_ptr<BoxTable> load_boxes(const ConvertOptions& o, const Progress& progress) {
  fs::path path = o.boxes;
  if (path.empty() && is_ilsvrc(o.source)) path = boxes_beside(o.source);
  if (path.empty()) return nullptr;
  log_info("reading boxes from {}", path.string());
  auto table = std::make_unique<BoxTable>(
      BoxTable::load(path, [&](std::int64_t, std::int64_t) { return !progress || progress(0, 0); }));
  log_info("boxes of {} images, {} annotation files skipped", table->images(), table->bad_files());
  return table;
}

struct Made {
  bool anew = false;                  // the image had to be encoded anew
  bool boxed = false;                 // it has boxes
  std::unique_lock<std::mutex> turn;  // of a large record
  std::vector<std::uint8_t> record;   // framed
};

// Converts formats that hardly any other reader supports: a CMYK JPEG becomes an RGB JPEG, and formats other
// than JPEG and PNG become PNG, without loss.
bool is_common(const ImageInfo& info) {
  return info.format == ImageFormat::jpeg ? info.channels != 4 : info.format == ImageFormat::png;
}

// PNG that was made of another format has the ending of its own.
std::string as_png(const std::string& file_name) {
  return fs::path(file_name).replace_extension("png").string();
}

// Whether a record called `name` may be of this file.
bool is_record_name(const std::string& name, const std::string& file_name) {
  return name == file_name || name == as_png(file_name);
}

// Large images take turns until they are written: encoding and records need as much memory again. Who has
// the turn waits for no other memory.
std::mutex large_turn;

std::vector<std::uint8_t> encode_anew(Decoder& decoder, ImageFormat format,
                                      std::unique_lock<std::mutex>& turn) {
  const Pixels pixels = decoder.decode();
  const auto row = static_cast<std::size_t>(pixels.width) * 3,
             height = static_cast<std::size_t>(pixels.height);
  if (row * height > static_cast<std::size_t>(kSmallImage)) turn.lock();
  const std::uint8_t* rgb = pixels.data;
  std::vector<std::uint8_t> packed;
  if (pixels.stride != static_cast<std::ptrdiff_t>(row)) {
    packed.reserve(row * height);
    for (int y = 0; y < pixels.height; ++y)
      packed.insert(packed.end(), pixels.data + y * pixels.stride,
                    pixels.data + y * pixels.stride + static_cast<std::ptrdiff_t>(row));
    rgb = packed.data();
  }
  std::vector<std::uint8_t> encoded = format == ImageFormat::jpeg
                                          ? encode_jpeg(rgb, pixels.width, pixels.height, kQuality)
                                          : encode_png(rgb, pixels.width, pixels.height);
  decoder.close();
  return encoded;
}

Made make_record(const RecordSource& source, std::int64_t sample, const BoxTable* boxes, Bench& bench) {
  FileBytes memory(bench.scratch);
  DetailedSample found = source.read_detailed(sample, memory);
  const ImageInfo info = bench.decoder->open(found.bytes);
  ImageExample example;
  example.encoded = found.bytes;
  std::vector<std::uint8_t> encoded;
  std::unique_lock turn(large_turn, std::defer_lock);
  const bool anew = !is_common(info);
  const ImageFormat format = info.format == ImageFormat::jpeg ? info.format : ImageFormat::png;
  if (anew) {
    encoded = encode_anew(*bench.decoder, format, turn);
    example.encoded = encoded;
  } else {
    bench.decoder->examine();
  }
  const std::int32_t label = source.label(sample);
  example.label = label + kFirstLabel;
  example.synset = source.classes()[static_cast<std::size_t>(label)];
  example.filename = std::move(found.file_name);
  example.text = std::move(found.class_text);
  example.boxes = std::move(found.boxes);
  if (boxes) {
    if (auto annotated = boxes->find(example.filename, example.synset); !annotated.empty())
      example.boxes = std::move(annotated);
  }
  if (format != info.format) example.filename = as_png(example.filename);
  example.format = format_name(format);
  example.channels = anew ? 3 : info.channels;
  example.colorspace = example.channels <= 2 ? "Grayscale" : "RGB";
  example.width = info.width;
  example.height = info.height;
  if (!turn.owns_lock() && std::ssize(example.encoded) > kSmallImage) turn.lock();
  Made made{anew, !example.boxes.empty(), std::move(turn), {}};
  append_record(made.record, serialize_example(example));
  return made;
}

class Converter {
 public:
  Converter(const ConvertOptions& options, std::int64_t images, const BoxTable* boxes, std::size_t shards,
            const Progress& progress)
      : options_(options),
        images_(images),
        boxes_(boxes),
        progress_(progress),
        bad_(options.max_bad, images),
        records_(shards) {
    benches_.resize(static_cast<std::size_t>(options.threads));
    for (Bench& bench : benches_) bench.decoder = std::make_unique<Decoder>(options.limits);
  }

  void run(const ShardTask& task, std::size_t number, int worker) {
    const fs::path path = options_.target / shard_name(task.split->split, task.shard, task.split->shards);
    Bench& bench = benches_[static_cast<std::size_t>(worker)];
    if (auto shard = whole_shard(path, task.end() - task.begin());
        shard && count_left_out(task, number, *shard, bench)) {
      const std::lock_guard lock(mutex_);
      ++result.shards_found;
      result.written += static_cast<std::int64_t>(shard->records.size());
      records_[number] = std::move(shard->records);
      report(task.end() - task.begin());
      return;
    }
    AtomicFile file(path, Sync::no);
    std::vector<RecordFrame> frames;
    std::vector<IndexedRecord> records;
    for (std::int64_t i = task.begin(); i < task.end(); ++i) {
      const std::int64_t sample = task.split->order[static_cast<std::size_t>(i)];
      Made made;
      bool good = true;
      try {
        made = make_record(*task.split->source, sample, boxes_, bench);
      } catch (const Error& error) {
        if (error.code() != ExitCode::bad_data && error.code() != ExitCode::io) throw;
        good = false;
        bad_.note(static_cast<std::int64_t>(number), {task.split->source->name(sample), error.what()},
                  error.code());
      }
      if (good) {
        frames.push_back({file.size(), made.record.size()});
        records.push_back({frames.back(), task.split->source->label(sample)});
        file.write(std::as_bytes(std::span(made.record)));
      }
      const std::lock_guard lock(mutex_);
      result.written += good;
      result.reencoded += made.anew;
      result.boxed += made.boxed;
      report(1);
    }
    file.commit();
    // After the shard: a shard without its index counts as missing.
    write_file_atomically(path.string() + ".idx", index_text(frames), Sync::no);
    const std::lock_guard lock(mutex_);
    records_[number] = std::move(records);
  }

  // Writes the index, so that training need not read the shards again. tasks: as given to run().
  void write_index(const SplitWork& split, const std::vector<ShardTask>& tasks) const {
    RecordIndex index;
    index.classes = split.source->classes();
    index.first_label = kFirstLabel;
    for (std::size_t number = 0; number < tasks.size(); ++number) {
      if (tasks[number].split != &split) continue;
      const RandomFile file(options_.target / shard_name(split.split, tasks[number].shard, split.shards));
      const auto container = static_cast<std::uint32_t>(index.containers.size());
      index.containers.push_back({file.path().filename().string(), file.size(), file.modified_ns()});
      for (const IndexedRecord& record : records_[number])
        index.entries.push_back({record.frame.offset, record.frame.size, container, record.label});
    }
    if (!index.entries.empty()) save_index(index_path(options_.target, split.split), index);
  }

  ConvertResult finish() {
    result.bad = bad_.list();  // by shard, whatever the threads' timing
    return std::move(result);
  }

  ConvertResult result;

 private:
  // Records the images that an existing shard skipped, as if it were written now: they count towards
  // --max-bad however often a conversion was interrupted. False if one of them is good by now, or the shard
  // has other images: then it must be rewritten.
  bool count_left_out(const ShardTask& task, std::size_t number, const WholeShard& shard, Bench& bench) {
    if (shard.files.size() != shard.records.size()) return true;
    std::vector<std::pair<Complaint, ExitCode>> left_out;
    std::size_t next = 0;
    for (std::int64_t i = task.begin(); i < task.end(); ++i) {
      const std::int64_t sample = task.split->order[static_cast<std::size_t>(i)];
      const RecordSource& source = *task.split->source;
      const auto file_name = [&] {
        FileBytes memory(bench.scratch);
        return source.read_detailed(sample, memory).file_name;
      };
      try {
        const bool here = next < shard.files.size() && shard.records[next].label == source.label(sample) &&
                          is_record_name(shard.files[next], file_name());
        if (!here) {
          make_record(source, sample, boxes_, bench);
          return false;
        }
        ++next;
      } catch (const Error& error) {
        if (error.code() != ExitCode::bad_data && error.code() != ExitCode::io) throw;
        left_out.push_back({{source.name(sample), error.what()}, error.code()});
      }
    }
    if (next != shard.files.size()) return false;
    for (auto& [complaint, code] : left_out)
      bad_.note(static_cast<std::int64_t>(number), std::move(complaint), code);
    return true;
  }

  void report(std::int64_t more) {
    done_ += more;
    if (progress_ && !progress_(done_, images_)) throw Stopped{};
  }

  const ConvertOptions& options_;
  const std::int64_t images_;
  const BoxTable* boxes_;  // may be null
  const Progress& progress_;
  std::vector<Bench> benches_;
  std::mutex mutex_;
  std::int64_t done_ = 0;
  BadImages bad_;
  std::vector<std::vector<IndexedRecord>> records_;  // by task
};

}  // namespace

ConvertResult convert_to_tfrecord(const ConvertOptions& given, const Progress& progress) {
  validate(given);
  require_target(given.source, given.target);
  UnpackedShards unpacked(given.source, given.target, given.threads, progress);
  ConvertOptions options = given;
  if (!unpacked.path().empty()) options.source = unpacked.path();
  const std::vector<SplitWork> splits = open_splits(options);
  std::int64_t images = 0;
  for (const SplitWork& split : splits) images += split.source->count();
  const std::unique_ptr<BoxTable> boxes = load_boxes(options, progress);
  announce(options.target, splits);
  const std::unique_ptr<FolderLock> lock =
      claim_folder(options.target, kManifest, manifest_text(options, splits, boxes.get()));
  std::vector<ShardTask> tasks;
  for (const SplitWork& split : splits)
    for (int shard = 0; shard < split.shards; ++shard) tasks.push_back({&split, shard});
  const std::vector<std::string>& classes = splits.front().source->classes();
  if (std::all_of(classes.begin(), classes.end(), is_plain_name))
    write_file_atomically(options.target / kClassesFile, class_list_text(classes), Sync::no);
  Converter converter(options, images, boxes.get(), tasks.size(), progress);
  parallel_for(static_cast<std::int64_t>(tasks.size()), options.threads, [&](std::int64_t item, int worker) {
    const auto number = static_cast<std::size_t>(item);
    converter.run(tasks[number], number, worker);
  });
  for (const SplitWork& split : splits) converter.write_index(split, tasks);
  ConvertResult result = converter.finish();
  for (const SplitWork& split : splits)
    for (std::string& part : split.source->damage()) result.damage.push_back(std::move(part));
  unpacked.remove();
  finish_folder(options.target);
  return result;
}

}  // namespace redline::data
