#include "report/settings.h"

#include <algorithm>

#include <fmt/format.h>

namespace redline::report {
namespace {

// Two folders of the same name with other images are other data. Images that are generated are all alike, and
// their number follows from the batch size.
std::string data_of(const metrics::RunInfo& info) {
  if (info.data == "synthetic") return info.data;
  return fmt::format("{}, {} training images", data_name(info), info.train_samples);
}

}  // namespace

std::vector<WorkFact> work_of(const Run& run) {
  const metrics::RunInfo& info = run.info;
  if (info.model.empty()) return {};
  return {{"model", "model.name", info.model},
          {"data", "data", data_of(info)},
          {"image_size", "model.image_size", std::to_string(info.image_size)},
          {"classes", "model.classes", std::to_string(info.classes)},
          {"batch_size", "optimizer.batch_size", std::to_string(info.batch_size)},
          {"accumulate", "optimizer.accumulate", std::to_string(info.accumulate)},
          {"ranks", "ranks", std::to_string(info.ranks)},
          {"dtype", "device.dtype", info.dtype}};
}

void SettingTable::put(std::size_t run, const std::string& name, const std::string& value) {
  auto at = std::ranges::find(settings_, name, &Setting::name);
  if (at == settings_.end()) at = settings_.insert(settings_.end(), {name, std::vector<std::string>(runs_)});
  if (at->values[run].empty()) at->values[run] = value;
}

}  // namespace redline::report
