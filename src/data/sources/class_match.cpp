#include "data/sources/class_match.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "data/sources/class_list.h"

namespace redline::data {
namespace {

std::string as_utf8(const std::string& name) {
  using Json = nlohmann::json;
  return Json::parse(Json(name).dump(-1, ' ', false, Json::error_handler_t::replace)).get<std::string>();
}

bool only_numbers(const std::vector<std::string>& classes) {
  const std::size_t first = !classes.empty() && classes.front() == "1" ? 1 : 0;
  for (std::size_t i = 0; i < classes.size(); ++i)
    if (classes[i] != std::to_string(first + i)) return false;
  return true;
}

std::string some_of(std::vector<std::string> names) {
  constexpr std::size_t kShown = 5;
  const std::size_t more = names.size() - std::min(kShown, names.size());
  names.resize(names.size() - more);
  return fmt::format("'{}'{}", fmt::join(names, "', '"), more > 0 ? fmt::format(" and {} more", more) : "");
}

class Relabelled final : public RecordSource {
 public:
  Relabelled(std::shared_ptr<const RecordSource> source, std::vector<std::int32_t> labels,
             std::vector<std::string> classes)
      : source_(std::move(source)), labels_(std::move(labels)), classes_(std::move(classes)) {}

  std::int64_t count() const override { return source_->count(); }
  std::int32_t label(std::int64_t index) const override {
    return labels_.at(static_cast<std::size_t>(source_->label(index)));
  }
  std::string name(std::int64_t index) const override { return source_->name(index); }
  const std::vector<std::string>& classes() const override { return classes_; }
  const char* kind() const override { return source_->kind(); }
  std::vector<std::string> damage() const override { return source_->damage(); }
  std::vector<LeftOut> left_out() const override { return source_->left_out(); }
  std::int64_t encoded_bytes(std::int64_t index) const override { return source_->encoded_bytes(index); }
  bool sizes_known() const override { return source_->sizes_known(); }
  std::span<const std::uint8_t> read(std::int64_t index, FileBytes& memory) const override {
    return source_->read(index, memory);
  }
  DetailedSample read_detailed(std::int64_t index, FileBytes& memory) const override {
    return source_->read_detailed(index, memory);
  }

 private:
  std::shared_ptr<const RecordSource> source_;
  std::vector<std::int32_t> labels_;  // by the source's label
  std::vector<std::string> classes_;
};

}  // namespace

std::vector<std::string> lasting_names(const std::vector<std::string>& classes) {
  if (only_numbers(classes)) return {};
  std::vector<std::string> names;
  std::ranges::transform(classes, std::back_inserter(names), as_utf8);
  if (std::set<std::string>(names.begin(), names.end()).size() != names.size()) return {};
  return names;
}

std::vector<std::int32_t> match_classes(const std::vector<std::string>& names,
                                        const std::vector<std::string>& classes, const std::string& path) {
  std::vector<std::int32_t> labels(classes.size());
  const std::vector<std::string> present = lasting_names(classes);
  if (names.empty() || present.empty()) {
    std::iota(labels.begin(), labels.end(), 0);
    return labels;
  }
  const ClassLabels known(names), there(present);
  std::vector<std::string> strangers, absent;
  for (std::size_t i = 0; i < present.size(); ++i) {
    labels[i] = known.find(present[i]);
    if (labels[i] < 0) strangers.push_back(present[i]);
  }
  for (const std::string& name : names)
    if (there.find(name) < 0) absent.push_back(name);
  if (!strangers.empty()) {
    throw UsageError("{} has {} that the network was not trained on: {}{}", path,
                     strangers.size() == 1 ? "a class" : "classes", some_of(strangers),
                     absent.empty() ? "" : fmt::format("; missing there: {}", some_of(absent)));
  }
  if (!absent.empty())
    log_warning("{} has {} of the network's {} classes; there are no images of {}", path, present.size(),
                names.size(), some_of(absent));
  return labels;
}

std::shared_ptr<const RecordSource> relabelled(std::shared_ptr<const RecordSource> source,
                                               std::vector<std::int32_t> labels,
                                               std::vector<std::string> classes) {
  return std::make_shared<Relabelled>(std::move(source), std::move(labels), std::move(classes));
}

}  // namespace redline::data
