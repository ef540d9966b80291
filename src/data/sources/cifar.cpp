#include "data/sources/cifar.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/random_file.h"
#include "data/file.h"
#include "data/images/encode.h"
#include "data/sources/class_list.h"

namespace redline::data {
namespace fs = std::filesystem;
namespace {

constexpr int kSide = 32;
constexpr std::uint64_t kPixels = kSide * kSide * 3;  // [channel, row, column]

struct Layout {
  const char* folder;
  const char* names;     // of the classes
  std::uint64_t labels;  // bytes before the pixels, of which the last counts
  std::size_t classes;
  std::vector<std::string> train, test;
};

const std::vector<Layout>& layouts() {
  static const std::vector<Layout> kLayouts{
      {"cifar-10-batches-bin",
       "batches.meta.txt",
       1,
       10,
       {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin"},
       {"test_batch.bin"}},
      {"cifar-100-binary", "fine_label_names.txt", 2, 100, {"train.bin"}, {"test.bin"}}};
  return kLayouts;
}

struct Place {
  fs::path folder;
  const Layout* layout = nullptr;
};

const std::vector<std::string>& files_of(const Layout& layout, Split split) {
  return split == Split::train ? layout.train : layout.test;
}

bool has_any(const Place& place, Split split) {
  return std::ranges::any_of(files_of(*place.layout, split), [&](const std::string& name) {
    std::error_code ignored;
    return fs::is_regular_file(place.folder / name, ignored);
  });
}

Place find(const fs::path& path) {
  for (const Layout& layout : layouts())
    for (const fs::path& folder : {path, path / layout.folder})
      for (const Split split : {Split::train, Split::val})
        if (has_any({folder, &layout}, split)) return {folder, &layout};
  return {};
}

std::vector<std::string> class_names(const Place& place) {
  std::vector<std::string> names;
  std::error_code ignored;
  if (const fs::path list = place.folder / place.layout->names; fs::exists(list, ignored)) {
    std::string text = read_text(list, 1 << 20);
    while (text.ends_with('\n') || text.ends_with('\r')) text.pop_back();  // it ends with empty lines
    try {
      names = parse_class_list(text);
    } catch (const DataError& error) {
      throw DataError("{}: {}", list.string(), error.what());
    }
  }
  for (std::size_t label = names.size(); label < place.layout->classes; ++label)
    names.push_back(std::to_string(label));
  return names;
}

class Cifar final : public RecordSource {
 public:
  Cifar(const Place& place, Split split) : classes_(class_names(place)), labels_(place.layout->labels) {
    for (const std::string& name : files_of(*place.layout, split)) {
      if (!fs::exists(place.folder / name))
        throw DataError("{} is missing; fetch the archive again", (place.folder / name).string());
      const RandomFile& file = files_.emplace_back(place.folder / name);
      const std::uint64_t record = labels_ + kPixels;
      if (file.size() == 0 || file.size() % record != 0)
        throw DataError("{} has {} bytes, which is not a whole number of images of {}; fetch it again",
                        file.path().string(), file.size(), record);
      std::vector<std::uint8_t> label(labels_);
      for (std::uint64_t at = 0; at < file.size(); at += record) {
        file.read(at, label);
        if (label.back() >= classes_.size())
          throw DataError("{}: the image at byte {} has the label {}", file.path().string(), at,
                          label.back());
        samples_.push_back({static_cast<std::uint32_t>(files_.size() - 1), label.back(), at});
      }
    }
  }

  std::int64_t count() const override { return static_cast<std::int64_t>(samples_.size()); }
  std::int32_t label(std::int64_t index) const override { return sample(index).label; }
  std::string name(std::int64_t index) const override {
    return fmt::format("{}, image {}", files_[sample(index).file].path().string(),
                       sample(index).offset / (labels_ + kPixels));
  }
  const std::vector<std::string>& classes() const override { return classes_; }
  const char* kind() const override { return classes_.size() == 100 ? "CIFAR-100" : "CIFAR-10"; }

  std::span<const std::uint8_t> read(std::int64_t index, FileBytes& memory) const override {
    std::uint8_t planes[kPixels], rgb[kPixels];
    files_[sample(index).file].read(sample(index).offset + labels_, planes);
    for (std::size_t i = 0; i < kSide * kSide; ++i)
      for (std::size_t c = 0; c < 3; ++c) rgb[i * 3 + c] = planes[c * kSide * kSide + i];
    const std::vector<std::uint8_t> png = encode_png(rgb, kSide, kSide);
    const std::span<std::uint8_t> bytes = memory.room(png.size());
    std::ranges::copy(png, bytes.begin());
    return bytes;
  }

  DetailedSample read_detailed(std::int64_t index, FileBytes& memory) const override {
    DetailedSample found;
    found.bytes = read(index, memory);
    found.file_name = fmt::format("{:05}.png", index);
    found.class_text = classes_[static_cast<std::size_t>(label(index))];
    return found;
  }

 private:
  struct Sample {
    std::uint32_t file;
    std::int32_t label;
    std::uint64_t offset;
  };
  const Sample& sample(std::int64_t index) const { return samples_.at(static_cast<std::size_t>(index)); }

  std::vector<std::string> classes_;
  std::uint64_t labels_;
  std::vector<RandomFile> files_;
  std::vector<Sample> samples_;
};

}  // namespace

bool is_cifar(const fs::path& path) { return find(path).layout != nullptr; }

bool cifar_has_split(const fs::path& path, Split split) {
  const Place place = find(path);
  return place.layout && has_any(place, split);
}

std::unique_ptr<RecordSource> open_cifar(const fs::path& path, Split split, const SourceOptions&) {
  const Place place = find(path);
  check(place.layout != nullptr, "{} is not CIFAR", path.string());
  return std::make_unique<Cifar>(place, split);
}

}  // namespace redline::data
