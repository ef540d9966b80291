// state.json. Its first line holds the checksum of everything after it:
//     {"schema": "redline.checkpoint", "version": 1, "crc32c": "0a1b2c3d",
// and is compared byte by byte with what it must be, so no byte of the file can change unseen.
#include <algorithm>
#include <charconv>
#include <limits>

#include <nlohmann/json.hpp>

#include "base/build_info.h"
#include "base/clock.h"
#include "base/crc32c.h"
#include "base/error.h"
#include "train/checkpoint.h"
#include "weights/class_names.h"

namespace redline::train {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kVersion = 1;

std::uint32_t sum_of(std::string_view text) {
  return crc32c({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()});
}

std::string first_line(int version, std::string_view rest) {
  return fmt::format("{{\"schema\": \"redline.checkpoint\", \"version\": {}, \"crc32c\": \"{:08x}\",\n",
                     version, sum_of(rest));
}

Json progress_json(const Progress& progress) {
  Json json = {{"step", progress.step},
               {"epoch", progress.epoch},
               {"step_in_epoch", progress.step_in_epoch},
               {"schedule_step", progress.schedule_step},
               {"evaluated", progress.evaluated},
               {"samples", progress.samples},
               {"skipped_steps", progress.skipped_steps},
               {"bad_in_a_row", progress.bad_in_a_row},
               {"step_seconds", progress.step_seconds},
               {"gap_seconds",
                {{"data", progress.gap.data},
                 {"host", progress.gap.host},
                 {"exchange", progress.gap.exchange},
                 {"evaluation", progress.gap.evaluation},
                 {"checkpoint", progress.gap.checkpoint}}},
               {"epoch_seconds", progress.epoch_seconds}};
  if (progress.best) {
    json["best"] = {{"step", progress.best->step},
                    {"top1", progress.best->top1},
                    {"weights", progress.best->weights},
                    {"epoch", progress.best->epoch},
                    {"elapsed", progress.best->elapsed}};
  }
  return json;
}

std::int64_t count_in(const Json& json, const char* key) {
  const auto value = json.at(key).get<std::int64_t>();
  if (value < 0 || value > std::numeric_limits<std::int64_t>::max() / 4)
    throw DataError("'{}' is {}", key, value);
  return value;
}

void parse_times(const Json& json, Progress& progress) {
  metrics::Gap& gap = progress.gap;
  if (const auto gaps = json.find("gap_seconds"); gaps != json.end()) {
    progress.step_seconds = json.at("step_seconds").get<double>();
    gap = {gaps->at("data").get<double>(), gaps->at("host").get<double>(), gaps->at("exchange").get<double>(),
           gaps->at("evaluation").get<double>(), gaps->at("checkpoint").get<double>()};
    return;
  }
  // In old checkpoints: training time as seen by the host, the wait for data in it, and evaluations in
  // addition.
  const auto trained = json.at("train_seconds").get<double>();
  gap.data = json.at("data_seconds").get<double>();
  gap.evaluation = json.at("elapsed").get<double>() - trained;
  progress.step_seconds = trained - gap.data;
}

Progress parse_progress(const Json& json) {
  Progress progress;
  progress.step = count_in(json, "step");
  progress.epoch = count_in(json, "epoch");
  progress.step_in_epoch = count_in(json, "step_in_epoch");
  progress.schedule_step = count_in(json, "schedule_step");
  progress.evaluated = json.at("evaluated").get<bool>();
  progress.samples = count_in(json, "samples");
  progress.skipped_steps = count_in(json, "skipped_steps");
  progress.bad_in_a_row = count_in(json, "bad_in_a_row");
  parse_times(json, progress);
  progress.epoch_seconds = json.value("epoch_seconds", 0.0);  // the first checkpoints had none
  if (const auto best = json.find("best"); best != json.end()) {
    progress.best =
        Best{count_in(*best, "step"), best->at("top1").get<double>(), best->at("weights").get<std::string>(),
             best->contains("epoch") ? count_in(*best, "epoch") : 0, best->value("elapsed", 0.0)};
  }
  return progress;
}

Subject parse_subject(const Json& json) {
  Subject subject;
  subject.model = json.at("name").get<std::string>();
  subject.classes = count_in(json, "classes");
  subject.image_size = count_in(json, "image_size");
  subject.images_per_step = count_in(json, "images_per_step");
  subject.steps_per_epoch = count_in(json, "steps_per_epoch");
  subject.train_samples = count_in(json, "train_samples");
  if (const auto names = json.find("class_names"); names != json.end())
    subject.class_names = weights::parse_class_names(names->get<std::string>(), subject.classes);
  return subject;
}

std::uint32_t parse_sum(const std::string& text) {
  std::uint32_t sum = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), sum, 16);
  if (error != std::errc() || end != text.data() + text.size() || text.size() != 8)
    throw DataError("'{}' is not a checksum", text);
  return sum;
}

}  // namespace

std::string state_text(const CheckpointState& state, const std::vector<FileSum>& files) {
  Json json;
  json["written"] = utc_timestamp();
  json["program"] = program_facts();
  json["progress"] = progress_json(state.progress);
  const Subject& subject = state.subject;
  json["model"] = {{"name", subject.model},
                   {"classes", subject.classes},
                   {"image_size", subject.image_size},
                   {"images_per_step", subject.images_per_step},
                   {"steps_per_epoch", subject.steps_per_epoch},
                   {"train_samples", subject.train_samples}};
  if (const std::string names = weights::class_names_text(subject.class_names); !names.empty())
    json["model"]["class_names"] = names;
  json["files"] = Json::object();
  for (const FileSum& file : files)
    json["files"][file.name] = {{"bytes", file.bytes}, {"crc32c", fmt::format("{:08x}", file.crc32c)}};
  json["config"] = subject.config;
  // Without its opening brace, which the first line has. Paths in the configuration may not be UTF-8.
  std::string rest = json.dump(1, ' ', false, Json::error_handler_t::replace).substr(2) + "\n";
  return first_line(kVersion, rest) + rest;
}

CheckpointState parse_state(const std::string& text, std::vector<FileSum>& files) {
  const std::size_t end = text.find('\n');
  if (end == std::string::npos) throw DataError("it is cut off");
  const std::string_view rest = std::string_view(text).substr(end + 1);
  if (std::string_view(text).substr(0, end + 1) != first_line(kVersion, rest)) {
    // A newer version's file is whole too, and should not be called damaged.
    for (int version = kVersion + 1; version < kVersion + 100; ++version) {
      if (text.starts_with(first_line(version, rest)))
        throw DataError("it has version {}; this program reads version {}", version, kVersion);
    }
    throw DataError("its content does not match its checksum");
  }
  try {
    const Json json = Json::parse(text);
    CheckpointState state;
    state.progress = parse_progress(json.at("progress"));
    state.subject = parse_subject(json.at("model"));
    state.subject.config = json.at("config").get<std::string>();
    files.clear();
    for (const auto& [name, file] : json.at("files").items()) {
      files.push_back(
          {name, file.at("bytes").get<std::uint64_t>(), parse_sum(file.at("crc32c").get<std::string>())});
    }
    return state;
  } catch (const nlohmann::json::exception& error) {
    throw DataError("it is not what this program writes: {}", error.what());
  }
}

}  // namespace redline::train
