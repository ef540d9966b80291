#include "data/sources/shard_names.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>

#include "base/error.h"

namespace redline::data {
namespace fs = std::filesystem;
namespace {

bool is_digits(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == text.npos;
}

// "<before><shard>-of-<count><after>".
struct Numbered {
  std::string before, after;
  int shard = 0, count = 0;
  std::size_t width = 0;  // of the shard's number

  std::string name(int number) const {
    return fmt::format("{}{:0{}}-of-{:0{}}{}", before, number, width, count, width, after);
  }
};

std::optional<Numbered> parse_numbered(std::string_view name) {
  const std::size_t of = name.rfind("-of-");
  if (of == name.npos) return {};
  const std::size_t dash = name.rfind('-', of - 1);
  if (of == 0 || dash == name.npos) return {};
  const std::string_view shard = name.substr(dash + 1, of - dash - 1);
  const std::size_t end = std::min(name.find_first_not_of("0123456789", of + 4), name.size());
  const std::string_view count = name.substr(of + 4, end - of - 4);
  Numbered parsed{std::string(name.substr(0, dash + 1)), std::string(name.substr(end)), 0, 0, shard.size()};
  if (!is_digits(shard) || !is_digits(count) || shard.size() > 9 || count.size() > 9) return {};
  std::from_chars(shard.data(), shard.data() + shard.size(), parsed.shard);
  std::from_chars(count.data(), count.data() + count.size(), parsed.count);
  const bool records = parsed.after.empty() || parsed.after == ".tfrecord" || parsed.after == ".tfrecords" ||
                       parsed.after == ".gz" || parsed.after == ".tfrecord.gz";
  if (!records || parsed.count < 1) return {};
  return parsed;
}

bool is_record_name(std::string_view name) {
  return name.ends_with(".tfrecord") || name.ends_with(".tfrecords") || name.ends_with(".tfrecord.gz");
}

bool is_of(NamedSplit named, Split split) {
  return named == (split == Split::train ? NamedSplit::train : NamedSplit::val);
}

}  // namespace

NamedSplit split_in_name(std::string_view name) {
  NamedSplit found = NamedSplit::none;
  for (std::size_t at = 0; at < name.size();) {
    const std::size_t end = std::min(name.find_first_of("-_. ", at), name.size());
    const std::string_view word = name.substr(at, end - at);
    at = end + 1;
    if (word == "train" || word == "training") return NamedSplit::train;
    if (word == "val" || word == "valid" || word == "validation") return NamedSplit::val;
    if (word == "test") found = NamedSplit::other;
  }
  return found;
}

bool is_shard_name(std::string_view name) { return is_record_name(name) || parse_numbered(name); }

std::string shard_name(Split split, int shard, int shards) {
  return fmt::format("{}-{:05}-of-{:05}", split == Split::train ? "train" : "validation", shard, shards);
}

std::vector<std::string> shard_names(const fs::path& folder, Split split) {
  std::map<int, std::string> found;
  std::optional<Numbered> first;
  std::vector<std::string> plain;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (name.starts_with('.') || !is_of(split_in_name(name), split)) continue;
    const std::optional<Numbered> shard = parse_numbered(name);
    if (!shard) {
      if (is_record_name(name)) plain.push_back(name);
      continue;
    }
    if (first && shard->count != first->count)
      throw DataError("{} mixes shards of {} and of {}; keep one set", folder.string(), first->count,
                      shard->count);
    if (first && (shard->before != first->before || shard->after != first->after))
      throw DataError("{} mixes {} and {}; keep one set", folder.string(), name, found.begin()->second);
    if (!first) first = shard;
    found[shard->shard] = name;
  }
  if (error) throw IoError("cannot list {}: {}", folder.string(), error.message());
  if (!first) {
    std::sort(plain.begin(), plain.end());
    return plain;
  }
  if (!plain.empty())
    throw DataError("{} mixes {} and {}; keep one set", folder.string(), plain.front(),
                    found.begin()->second);
  std::vector<std::string> names;
  for (int shard = 0; shard < first->count; ++shard) {
    if (!found.contains(shard))
      throw DataError("{} is missing; the set has {} of {} shards", (folder / first->name(shard)).string(),
                      found.size(), first->count);
    names.push_back(found[shard]);
  }
  return names;
}

}  // namespace redline::data
