#include "data/prepare/verify.h"

#include <algorithm>
#include <limits>
#include <memory>

#include "base/error.h"
#include "data/parallel.h"

namespace redline::data {
namespace {

// What one thread has found; added up at the end, so that threads share nothing.
struct Findings {
  struct Note {
    std::int64_t index;
    std::string text;
  };
  std::unique_ptr<Decoder> decoder;
  std::vector<std::uint8_t> scratch;
  std::vector<std::int64_t> per_class;
  std::vector<Note> bad, odd;
  std::int64_t bytes = 0, pixels = 0;
  int min_width = std::numeric_limits<int>::max(), max_width = 0;
  int min_height = std::numeric_limits<int>::max(), max_height = 0;
};

void look_at(const RecordSource& source, std::int64_t index, Findings& found) {
  try {
    FileBytes memory(found.scratch);
    const std::span<const std::uint8_t> bytes = source.read(index, memory);
    found.bytes += static_cast<std::int64_t>(bytes.size());
    const ImageInfo info = found.decoder->open(bytes);
    found.decoder->examine(true);
    if (!found.decoder->warning().empty()) found.odd.push_back({index, found.decoder->warning()});
    found.pixels += std::int64_t{info.width} * info.height;
    found.min_width = std::min(found.min_width, info.width);
    found.max_width = std::max(found.max_width, info.width);
    found.min_height = std::min(found.min_height, info.height);
    found.max_height = std::max(found.max_height, info.height);
    ++found.per_class[static_cast<std::size_t>(source.label(index))];
  } catch (const Error& error) {
    if (error.code() != ExitCode::bad_data && error.code() != ExitCode::io) throw;
    found.bad.push_back({index, error.what()});
  }
}

std::vector<Complaint> in_order(const RecordSource& source, std::vector<Findings::Note> notes) {
  std::sort(notes.begin(), notes.end(), [](const auto& a, const auto& b) { return a.index < b.index; });
  std::vector<Complaint> list;
  for (Findings::Note& note : notes) list.push_back({source.name(note.index), std::move(note.text)});
  return list;
}

VerifiedSplit add_up(const RecordSource& source, Split split, const std::vector<Findings>& all) {
  VerifiedSplit result;
  result.split = split;
  result.kind = source.kind();
  result.images = source.count();
  result.per_class.assign(source.classes().size(), 0);
  result.min_width = result.min_height = std::numeric_limits<int>::max();
  std::vector<Findings::Note> bad, odd;
  for (const Findings& found : all) {
    for (std::size_t i = 0; i < result.per_class.size(); ++i) result.per_class[i] += found.per_class[i];
    bad.insert(bad.end(), found.bad.begin(), found.bad.end());
    odd.insert(odd.end(), found.odd.begin(), found.odd.end());
    result.bytes += found.bytes;
    result.pixels += found.pixels;
    result.min_width = std::min(result.min_width, found.min_width);
    result.max_width = std::max(result.max_width, found.max_width);
    result.min_height = std::min(result.min_height, found.min_height);
    result.max_height = std::max(result.max_height, found.max_height);
  }
  if (result.max_width == 0) result.min_width = result.min_height = 0;  // no image was good
  result.bad = in_order(source, std::move(bad));
  for (const std::string& damage : source.damage()) result.bad.push_back({damage, "cannot be listed"});
  result.odd = in_order(source, std::move(odd));
  return result;
}

}  // namespace

std::int64_t Verification::images() const {
  std::int64_t sum = 0;
  for (const VerifiedSplit& split : splits) sum += split.images;
  return sum;
}

std::int64_t Verification::bad() const {
  std::int64_t sum = 0;
  for (const VerifiedSplit& split : splits) sum += static_cast<std::int64_t>(split.bad.size());
  return sum;
}

Verification verify(const std::filesystem::path& path, const VerifyOptions& options,
                    const Progress& progress) {
  std::vector<std::pair<Split, std::unique_ptr<RecordSource>>> sources;
  std::int64_t total = 0;
  for (const Split split : {Split::train, Split::val}) {
    if (!has_split(path, split)) continue;
    sources.emplace_back(split, open_source(path, split, options.source));
    total += sources.back().second->count();
  }
  Verification result;
  result.classes = sources.front().second->classes();
  std::int64_t before = 0;  // images of the splits that are done
  for (const auto& [split, source] : sources) {
    std::vector<Findings> found(static_cast<std::size_t>(options.threads));
    for (Findings& one : found) {
      one.decoder = std::make_unique<Decoder>(options.limits);
      one.per_class.assign(source->classes().size(), 0);
    }
    Progress part;
    if (progress) part = [&](std::int64_t done, std::int64_t) { return progress(before + done, total); };
    parallel_for(
        source->count(), options.threads,
        [&, &records = *source](std::int64_t item, int worker) {
          look_at(records, item, found[static_cast<std::size_t>(worker)]);
        },
        part);
    result.splits.push_back(add_up(*source, split, found));
    before += source->count();
  }
  return result;
}

}  // namespace redline::data
