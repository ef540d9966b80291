#include "data/sources/boxes.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <memory>
#include <optional>

#include <expat.h>

#include "base/crc32c.h"
#include "base/error.h"
#include "base/log.h"
#include "data/file.h"
#include "data/sources/archive_reader.h"

namespace redline::data {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t kMaxXml = 1 << 20;  // published ones have a few hundred bytes
constexpr std::size_t kMostNested = 16;
constexpr std::size_t kMaxText = 256;
constexpr int kLoggedBad = 20;

// The callbacks of expat. An exception must not pass through it, so errors are stored and parsing is stopped.
struct Reading {
  XML_Parser parser = nullptr;
  std::string path;  // of the open elements: "/annotation/object/name"
  std::size_t depth = 0;
  std::string text;  // of the innermost
  std::string trouble;
  double width = 0, height = 0;
  struct Object {
    std::string name;
    std::optional<double> xmin, ymin, xmax, ymax;
  };
  std::vector<Object> objects;

  void stop(const char* reason) {
    if (trouble.empty()) trouble = reason;
    XML_StopParser(parser, XML_FALSE);
  }

  void begin(const char* name) {
    if (++depth > kMostNested) return stop("elements within elements within elements");
    path.append("/").append(name);
    text.clear();
    if (depth == 1 && path != "/annotation") return stop("not an annotation");
    if (path == "/annotation/object") objects.emplace_back();
  }

  void end() {
    const auto number = [&](auto& value) {
      double parsed = 0;
      const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), parsed);
      if (error != std::errc{} || rest != text.data() + text.size() || !std::isfinite(parsed))
        stop("a size or corner that is not a number");
      else
        value = parsed;
    };
    if (path == "/annotation/size/width") number(width);
    if (path == "/annotation/size/height") number(height);
    if (path.starts_with("/annotation/object/")) {
      Object& object = objects.back();
      if (path == "/annotation/object/name") object.name = text;
      if (path == "/annotation/object/bndbox/xmin") number(object.xmin);
      if (path == "/annotation/object/bndbox/ymin") number(object.ymin);
      if (path == "/annotation/object/bndbox/xmax") number(object.xmax);
      if (path == "/annotation/object/bndbox/ymax") number(object.ymax);
    }
    path.resize(path.rfind('/'));
    --depth;
    text.clear();
  }

  void add_text(const char* from, int length) {
    const std::string_view more(from, static_cast<std::size_t>(length));
    if (text.empty() && more.find_first_not_of(" \t\r\n") == more.npos) return;
    if (text.size() + more.size() > kMaxText) return stop("a text that is too long");
    text.append(more);
  }
};

std::optional<NamedBox> to_box(const Reading::Object& o, double width, double height) {
  if (!o.xmin || !o.ymin || !o.xmax || !o.ymax) throw DataError("a box without its four corners");
  const auto share = [](double value, double of) {
    return static_cast<float>(std::clamp(value / of, 0.0, 1.0));
  };
  const BoundingBox box{share(std::min(*o.xmin, *o.xmax), width), share(std::min(*o.ymin, *o.ymax), height),
                        share(std::max(*o.xmin, *o.xmax), width), share(std::max(*o.ymin, *o.ymax), height)};
  if (!(box.xmin < box.xmax && box.ymin < box.ymax)) return {};
  return NamedBox{o.name, box};
}

// Where annotations are, beside ImageNet's tars.
constexpr const char* kFolders[] = {"Annotation", "Annotations"};

bool is_boxes_archive(const std::string& name) {
  for (const char* ending : {".tar", ".tar.gz", ".tgz", ".zip"})
    if (name.ends_with(ending)) return true;
  return false;
}

bool is_box_archive_name(const std::string& name) {
  return name.find("bbox") != name.npos && is_boxes_archive(name);
}

std::string_view text_of(std::span<const std::uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

std::vector<NamedBox> parse_annotation(std::string_view xml) {
  if (xml.size() > kMaxXml) throw DataError("{} bytes, far more than an annotation has", xml.size());
  const std::unique_ptr<std::remove_pointer_t<XML_Parser>, decltype([](XML_Parser p) { XML_ParserFree(p); })>
      parser(XML_ParserCreate(nullptr));
  check(parser != nullptr, "expat gave no parser");
  Reading reading;
  reading.parser = parser.get();
  XML_SetUserData(parser.get(), &reading);
  XML_SetElementHandler(
      parser.get(),
      [](void* to, const XML_Char* name, const XML_Char**) { static_cast<Reading*>(to)->begin(name); },
      [](void* to, const XML_Char*) { static_cast<Reading*>(to)->end(); });
  XML_SetCharacterDataHandler(parser.get(), [](void* to, const XML_Char* text, int length) {
    static_cast<Reading*>(to)->add_text(text, length);
  });
  XML_SetEntityDeclHandler(
      parser.get(),
      [](void* to, const XML_Char*, int, const XML_Char*, int, const XML_Char*, const XML_Char*,
         const XML_Char*, const XML_Char*) { static_cast<Reading*>(to)->stop("it declares entities"); });
  const XML_Status status = XML_Parse(parser.get(), xml.data(), static_cast<int>(xml.size()), XML_TRUE);
  if (!reading.trouble.empty())
    throw DataError("line {}: {}", XML_GetCurrentLineNumber(parser.get()), reading.trouble);
  if (status != XML_STATUS_OK)
    throw DataError("line {}: {}", XML_GetCurrentLineNumber(parser.get()),
                    XML_ErrorString(XML_GetErrorCode(parser.get())));
  if (!(reading.width >= 1 && reading.height >= 1)) throw DataError("it does not give its image's size");
  std::vector<NamedBox> boxes;
  for (const Reading::Object& object : reading.objects)
    if (std::optional<NamedBox> box = to_box(object, reading.width, reading.height))
      boxes.push_back(std::move(*box));
  return boxes;
}

void BoxTable::add(const std::string& name, std::string_view xml) {
  try {
    boxes_[fs::path(name).stem().string()] = parse_annotation(xml);
  } catch (const DataError& error) {
    if (++bad_ <= kLoggedBad) log_warning("skipped the boxes of {}: {}", name, error.what());
    if (bad_ == kLoggedBad) log_warning("further unusable annotations are counted, not named");
  }
}

BoxTable BoxTable::load(const fs::path& path, const Progress& progress) {
  BoxTable table;
  const auto report = [&] {
    if (progress && !progress(0, 0)) throw Stopped{};
  };
  const auto add_archive = [&](const fs::path& archive) {
    for (ArchiveReader reader(archive); reader.next(); report())
      if (reader.name().ends_with(".xml")) table.add(reader.name(), text_of(reader.read(kMaxXml)));
  };
  std::error_code error;
  if (fs::is_regular_file(path, error)) {
    add_archive(path);
  } else {
    // In order, so that of two files for one image the same wins everywhere.
    std::vector<fs::path> found;
    for (fs::recursive_directory_iterator it(path, error), end; !error && it != end; it.increment(error)) {
      const std::string name = it->path().filename().string();
      if (name.ends_with(".xml") || is_box_archive_name(name)) found.push_back(it->path());
      report();
    }
    if (error) throw IoError("cannot list {}: {}", path.string(), error.message());
    std::sort(found.begin(), found.end());
    for (const fs::path& file : found) {
      if (file.extension() != ".xml") {
        add_archive(file);
        continue;
      }
      table.add(file.string(), read_text(file, kMaxXml));
      report();
    }
  }
  if (table.boxes_.empty())
    throw UsageError("{} holds no boxes: neither <image>.xml files nor archives of them", path.string());
  return table;
}

std::vector<BoundingBox> BoxTable::find(std::string_view file_name, std::string_view wnid) const {
  std::vector<BoundingBox> boxes;
  const auto found = boxes_.find(fs::path(file_name).stem().string());
  if (found == boxes_.end()) return boxes;
  for (const NamedBox& one : found->second)
    if (one.name == wnid) boxes.push_back(one.box);
  return boxes;
}

std::string BoxTable::fingerprint() const {
  std::string all;
  for (const auto& [name, boxes] : std::map(boxes_.begin(), boxes_.end()))
    for (const NamedBox& one : boxes)
      all += fmt::format("{}\t{}\t{}\t{}\t{}\t{}\n", name, one.name, one.box.xmin, one.box.ymin, one.box.xmax,
                         one.box.ymax);
  return fmt::format("{:08x}", crc32c({reinterpret_cast<const std::uint8_t*>(all.data()), all.size()}));
}

bool is_box_source(const fs::path& path) {
  const std::string name = path.filename().string();
  return std::ranges::find(kFolders, name) != std::end(kFolders) || is_box_archive_name(name);
}

fs::path boxes_beside(const fs::path& folder) {
  std::error_code error;
  for (const char* name : kFolders)
    if (fs::is_directory(folder / name, error)) return folder / name;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    if (is_box_archive_name(it->path().filename().string())) return folder;
  return {};
}

}  // namespace redline::data
