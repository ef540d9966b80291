#include "metrics/event_file.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstring>
#include <vector>

#include <unistd.h>

#include <fmt/format.h>

#include "base/error.h"
#include "base/random_file.h"
#include "base/tfrecord.h"
#include "metrics/tensorboard_tags.h"
#include "tensorboard.pb.h"

namespace redline::metrics {
namespace {

namespace fs = std::filesystem;
namespace proto = redline::tensorboard;

constexpr std::string_view kPrefix = "events.out.tfevents.";

std::vector<fs::path> event_files(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (entry.path().filename().string().starts_with(kPrefix) && entry.is_regular_file())
      files.push_back(entry.path());
  }
  std::ranges::sort(files);
  return files;
}

// The time in a file's name, in seconds; 0 if there is none.
std::int64_t second_of(const fs::path& file) {
  const std::string name = file.filename().string();
  std::int64_t second = 0;
  std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), second);
  return second;
}

// Whether an event stays when a run resumes from there.
bool stays(const proto::Event& event, const Resumed& resumed) {
  if (event.step() > resumed.step) return false;
  const bool repeated = event.step() == resumed.step && !resumed.evaluated;
  for (const auto& value : event.summary().value()) {
    if (value.tag() == kSessionEndTag) return false;
    if (repeated && value.tag().starts_with(kEvaluationPrefix)) return false;
  }
  return true;
}

// How many bytes of a file stay.
std::uint64_t kept_bytes(const RandomFile& file, const Resumed& resumed) {
  std::vector<std::uint8_t> scratch;
  std::uint64_t kept = 0;
  for (const RecordFrame& frame : list_records(file).frames) {
    try {
      const auto data = read_record(file, frame, scratch);
      proto::Event event;
      if (!event.ParseFromArray(data.data(), static_cast<int>(data.size())) || !stays(event, resumed)) break;
    } catch (const DataError&) {
      break;
    }
    kept = frame.offset + frame.size;
  }
  return kept;
}

}  // namespace

fs::path new_event_file(const fs::path& folder) {
  using namespace std::chrono;
  std::int64_t second = duration_cast<seconds>(system_clock::now().time_since_epoch()).count();
  const std::vector<fs::path> before = event_files(folder);
  if (!before.empty()) second = std::max(second, second_of(before.back()) + 1);
  char host[256] = "unknown";
  if (::gethostname(host, sizeof(host) - 1) != 0 || host[0] == '\0') std::strcpy(host, "unknown");
  return folder / fmt::format("{}{:010}.{}.{}.0", kPrefix, second, host, ::getpid());
}

void rewind_events(const fs::path& folder, const Resumed& resumed) {
  for (const fs::path& path : event_files(folder)) {
    std::uint64_t kept = 0, size = 0;
    {
      const RandomFile file(path);
      size = file.size();
      kept = kept_bytes(file, resumed);
    }
    if (kept == size) continue;
    std::error_code error;
    fs::resize_file(path, kept, error);
    if (error) throw IoError("cannot shorten {}: {}", path.string(), error.message());
  }
}

}  // namespace redline::metrics
