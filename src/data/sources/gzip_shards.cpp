#include "data/sources/gzip_shards.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <zlib.h>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "base/tfrecord.h"
#include "data/parallel.h"
#include "data/sources/class_list.h"
#include "data/sources/pass_progress.h"
#include "data/sources/shard_names.h"

namespace redline::data {
namespace fs = std::filesystem;
namespace {

constexpr std::uint64_t kPiece = 1 << 20;
// JPEGs hardly shrink, so what grows this much is not a shard of images.
constexpr std::uint64_t kMostGrowth = 200;

struct Inflater {
  z_stream stream{};

  Inflater() { check(inflateInit2(&stream, MAX_WBITS + 16) == Z_OK, "zlib does not start"); }
  ~Inflater() { inflateEnd(&stream); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;
};

void gunzip(const RandomFile& from, const fs::path& to, PassProgress& progress) {
  Inflater inflater;
  z_stream& stream = inflater.stream;
  AtomicFile out(to, Sync::no);
  std::vector<std::uint8_t> packed(kPiece), unpacked(kPiece);
  bool ended = false;
  for (std::uint64_t at = 0; at < from.size();) {
    const std::uint64_t count = std::min(kPiece, from.size() - at);
    from.read(at, {packed.data(), count});
    at += count;
    progress.add(count);
    stream.next_in = packed.data();
    stream.avail_in = static_cast<uInt>(count);
    while (stream.avail_in > 0) {
      if (std::exchange(ended, false)) inflateReset(&stream);  // files may be joined
      stream.next_out = unpacked.data();
      stream.avail_out = static_cast<uInt>(kPiece);
      const int code = inflate(&stream, Z_NO_FLUSH);
      if (code != Z_OK && code != Z_STREAM_END)
        throw DataError("{}: its compressed data is damaged", from.path().string());
      ended = code == Z_STREAM_END;
      out.write(std::as_bytes(std::span(unpacked).first(kPiece - stream.avail_out)));
      if (out.size() > from.size() * kMostGrowth)
        throw DataError("{} unpacks to more than {} times its size: it does not hold images",
                        from.path().string(), kMostGrowth);
    }
  }
  if (!ended) throw DataError("{}: the file is cut off", from.path().string());
  out.commit();
}

// What the end of the file says, which is the truth up to 4 GiB; JPEGs hardly shrink.
std::uint64_t unpacked_size(const RandomFile& file) {
  std::uint8_t end[4] = {};
  if (file.size() < sizeof(end)) return 0;
  file.read(file.size() - sizeof(end), end);
  std::uint64_t size = 0;
  for (int i = 3; i >= 0; --i) size = size << 8 | end[i];
  return std::max(file.size(), size);
}

// Says how much disk space the unpacked shards need. Throws IoError if there is not as much.
void announce(std::size_t shards, const fs::path& folder, std::uint64_t bytes) {
  std::error_code error;
  const fs::space_info space = fs::space(folder, error);
  if (!error && bytes > space.available)
    throw IoError(
        "{} compressed shards unpack to {}, but the disk of {} has {} free; free some space or choose "
        "another "
        "folder",
        shards, format_bytes(bytes), folder.string(), format_bytes(space.available));
  log_info("unpacking {} compressed shards to {}, which needs {} of disk space until the conversion is done",
           shards, folder.string(), format_bytes(bytes));
}

std::string plain_name(std::string name) {
  if (name.ends_with(".gz")) name.resize(name.size() - 3);
  return name;
}

}  // namespace

bool is_gzip(const RandomFile& file) {
  std::uint8_t bytes[3] = {};
  if (file.size() < 18) return false;
  file.read(0, bytes);
  return bytes[0] == 0x1f && bytes[1] == 0x8b && bytes[2] == 8 && list_records(file).frames.empty();
}

UnpackedShards::UnpackedShards(const fs::path& source, const fs::path& target, int threads,
                               const Progress& progress) {
  std::error_code error;
  if (!fs::is_directory(source, error)) return;
  std::vector<std::string> names;
  bool any = false;
  for (const Split split : {Split::train, Split::val})
    for (std::string& name : shard_names(source, split)) {
      any = any || is_gzip(RandomFile(source / name));
      names.push_back(std::move(name));
    }
  if (!any) return;
  fs::path beside = fs::absolute(target).lexically_normal();
  if (!beside.has_filename()) beside = beside.parent_path();
  path_ = beside.parent_path() / fmt::format(".{}.gunzipped", beside.filename().string());
  fs::create_directories(path_, error);
  if (error) throw IoError("cannot create the folder {}: {}", path_.string(), error.message());
  remove_partial_files(path_);
  for (const char* list : {kClassesFile, "label.labels.txt"})
    if (fs::exists(source / list, error))
      write_file_atomically(path_ / list, read_file(source / list), Sync::no);
  std::uint64_t packed = 0, unpacked = 0;
  std::erase_if(names, [&](const std::string& name) { return fs::exists(path_ / plain_name(name), error); });
  for (const std::string& name : names) {
    const RandomFile file(source / name);
    if (!is_gzip(file)) throw DataError("{} is not compressed, but others are", file.path().string());
    packed += file.size();
    unpacked += unpacked_size(file);
  }
  if (names.empty()) return;
  announce(names.size(), path_, unpacked);
  PassProgress passed("unpacking", packed, [&] { return progress && !progress(0, 0); });
  parallel_for(static_cast<std::int64_t>(names.size()), threads, [&](std::int64_t item, int) {
    const std::string& name = names[static_cast<std::size_t>(item)];
    gunzip(RandomFile(source / name), path_ / plain_name(name), passed);
  });
}

void UnpackedShards::remove() {
  std::error_code ignored;
  if (!path_.empty()) fs::remove_all(path_, ignored);
}

}  // namespace redline::data
