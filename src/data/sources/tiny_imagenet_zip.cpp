#include "data/sources/tiny_imagenet_zip.h"

#include <algorithm>
#include <mutex>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/random_file.h"
#include "data/sources/class_list.h"
#include "data/sources/class_words.h"
#include "data/sources/file_list.h"
#include "data/sources/val_annotations.h"
#include "data/sources/zip.h"

namespace redline::data {
namespace fs = std::filesystem;
namespace {

constexpr std::int64_t kMaxList = 32 << 20;  // words.txt has 2.5 MB
constexpr const char* kImages = "val/images/";

// The archive's directory, with names as they are under its top folder.
class TinyZip {
 public:
  explicit TinyZip(const fs::path& path) : file_(path) {
    try {
      members_ = list_zip(file_);
    } catch (const DataError& error) {
      throw DataError("{}: {}", path.string(), error.what());
    }
    const std::string list = std::string("val/") + kValAnnotations;
    for (const ZipMember& member : members_)
      if (member.name == list || member.name.ends_with("/" + list))
        top_ = member.name.substr(0, member.name.size() - list.size());
    std::erase_if(members_, [&](const ZipMember& m) { return !m.name.starts_with(top_); });
    for (ZipMember& member : members_) {
      member.name.erase(0, top_.size());
      if (member.name.starts_with("train/") && member.name.find('/', 6) != std::string::npos)
        has_train_ = true;
    }
    std::sort(members_.begin(), members_.end(),
              [](const ZipMember& a, const ZipMember& b) { return a.name < b.name; });
    if (!find(list) || !has_train_)
      throw UsageError(
          "{} is not Tiny ImageNet, the only zip that is read in place: it has no train folder and val/{}; "
          "unpack "
          "it, and give the folder",
          path.string(), kValAnnotations);
  }

  const ZipMember* find(const std::string& name) const {
    const auto found =
        std::lower_bound(members_.begin(), members_.end(), name,
                         [](const ZipMember& member, const std::string& n) { return member.name < n; });
    return found == members_.end() || found->name != name ? nullptr : &*found;
  }
  std::string text(const std::string& name) const {
    const ZipMember* member = find(name);
    if (!member) return {};
    try {
      FileBytes memory;
      const auto bytes = ZipReader().read(file_, *member, kMaxList, memory);
      return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
    } catch (const DataError& error) {
      throw DataError("{}/{}: {}", file_.path().string(), name, error.what());
    }
  }
  const std::vector<ZipMember>& members() const { return members_; }  // by name
  const RandomFile& file() const { return file_; }

 private:
  RandomFile file_;
  std::vector<ZipMember> members_;
  std::string top_;
  bool has_train_ = false;
};

bool is_image(const ZipMember& member) {
  return is_image_name(std::string_view(member.name).substr(member.name.rfind('/') + 1));
}

// "n01" of "train/n01/images/n01_0.JPEG"; empty for what is not in a class's folder.
std::string class_of(const std::string& name) {
  if (!name.starts_with("train/")) return {};
  const std::size_t slash = name.find('/', 6);
  return slash == name.npos ? std::string() : name.substr(6, slash - 6);
}

class ZippedSplit final : public RecordSource {
 public:
  ZippedSplit(std::shared_ptr<const TinyZip> zip, Split split, const SourceOptions& options)
      : options_(options), zip_(std::move(zip)) {
    for (const ZipMember& member : zip_->members()) {
      const std::string name = class_of(member.name);
      if (is_image(member) && !name.empty() && (classes_.empty() || classes_.back() != name))
        classes_.push_back(name);
    }
    std::sort(classes_.begin(), classes_.end());
    classes_.erase(std::unique(classes_.begin(), classes_.end()), classes_.end());
    if (split == Split::train)
      add_train();
    else
      add_val();
    if (samples_.empty())
      throw DataError("{} holds no {} images", zip_->file().path().string(), split_name(split));
  }

  std::int64_t count() const override { return static_cast<std::int64_t>(samples_.size()); }
  std::int32_t label(std::int64_t index) const override { return sample(index).second; }
  std::string name(std::int64_t index) const override {
    return (zip_->file().path() / sample(index).first->name).string();
  }
  const std::vector<std::string>& classes() const override { return classes_; }
  const char* kind() const override { return "Tiny ImageNet's zip"; }
  std::int64_t encoded_bytes(std::int64_t index) const override {
    return static_cast<std::int64_t>(sample(index).first->size);
  }

  std::span<const std::uint8_t> read(std::int64_t index, FileBytes& memory) const override {
    std::unique_ptr<ZipReader> reader = take_reader();
    const auto bytes = reader->read(zip_->file(), *sample(index).first, options_.max_bytes, memory);
    const std::lock_guard lock(mutex_);
    readers_.push_back(std::move(reader));
    return bytes;
  }

  DetailedSample read_detailed(std::int64_t index, FileBytes& memory) const override {
    std::call_once(words_read_, [this] { words_ = parse_words(zip_->text(kWordsFile), classes_); });
    DetailedSample found = RecordSource::read_detailed(index, memory);
    found.class_text = words_[static_cast<std::size_t>(label(index))];
    return found;
  }

 private:
  using Sample = std::pair<const ZipMember*, std::int32_t>;  // with its label

  void add_train() {
    const ClassLabels labels(classes_);
    for (const ZipMember& member : zip_->members())
      if (is_image(member) && !class_of(member.name).empty())
        samples_.emplace_back(&member, labels.find(class_of(member.name)));
    std::stable_sort(samples_.begin(), samples_.end(),
                     [](const Sample& a, const Sample& b) { return a.second < b.second; });
  }

  void add_val() {
    const ClassLabels labels(classes_);
    const std::string list = std::string("val/") + kValAnnotations;
    try {
      for (const ValAnnotation& one : parse_val_annotations(zip_->text(list))) {
        const ZipMember* member = zip_->find(kImages + one.file);
        const int label = labels.find(one.wnid);
        if (!member) throw DataError("it names {}, which is not in the archive", one.file);
        if (label < 0) throw DataError("{} is of class '{}', which train does not have", one.file, one.wnid);
        samples_.emplace_back(member, label);
      }
    } catch (const DataError& error) {
      throw DataError("{}/{}: {}", zip_->file().path().string(), list, error.what());
    }
  }

  std::unique_ptr<ZipReader> take_reader() const {
    const std::lock_guard lock(mutex_);
    if (readers_.empty()) return std::make_unique<ZipReader>();
    std::unique_ptr<ZipReader> reader = std::move(readers_.back());
    readers_.pop_back();
    return reader;
  }
  const Sample& sample(std::int64_t index) const { return samples_.at(static_cast<std::size_t>(index)); }

  SourceOptions options_;
  std::shared_ptr<const TinyZip> zip_;
  std::vector<std::string> classes_;
  std::vector<Sample> samples_;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<ZipReader>> readers_;  // those not in use
  mutable std::once_flag words_read_;
  mutable std::vector<std::string> words_;  // by label
};

std::vector<LeftOut> other_folders(const TinyZip& zip) {
  std::set<std::string> folders;
  for (const ZipMember& member : zip.members())
    if (const std::size_t slash = member.name.find('/'); slash != member.name.npos)
      folders.insert(member.name.substr(0, slash + 1));
  folders.erase("train/");
  folders.erase("val/");
  std::vector<LeftOut> list;
  for (const std::string& folder : folders) list.push_back({folder, 1, {}, false, {}});
  return list;
}

}  // namespace

bool is_zip_name(const fs::path& path) {
  std::error_code ignored;
  return path.extension() == ".zip" && fs::is_regular_file(path, ignored);
}

std::vector<LeftOut> unused_in_zip(const fs::path& path) { return other_folders(TinyZip(path)); }

std::unique_ptr<RecordSource> open_tiny_imagenet_zip(const fs::path& path, Split split,
                                                     const SourceOptions& options) {
  return std::make_unique<ZippedSplit>(std::make_shared<const TinyZip>(path), split, options);
}

TinyImagenetZip open_tiny_imagenet_zip(const fs::path& path, const SourceOptions& options) {
  const auto zip = std::make_shared<const TinyZip>(path);
  TinyImagenetZip all;
  all.train = std::make_unique<ZippedSplit>(zip, Split::train, options);
  all.val = std::make_unique<ZippedSplit>(zip, Split::val, options);
  all.unused = other_folders(*zip);
  all.val_annotations = zip->text(std::string("val/") + kValAnnotations);
  for (const std::string& name : all.train->classes())
    if (const std::string list = "train/" + name + "/" + name + "_boxes.txt"; zip->find(list))
      all.train_boxes[name] = zip->text(list);
  return all;
}

}  // namespace redline::data
