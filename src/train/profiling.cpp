#include "train/profiling.h"

#include <unistd.h>

#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/build_info.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/quantity.h"
#include "base/text.h"

namespace redline::train {
namespace {

constexpr std::size_t kRowsShown = 12;

profile::Subject subject_of(const Setup& setup, const profile::Nvml* gpu) {
  profile::Subject subject;
  subject.host = setup.machine.hostname;
  subject.process = static_cast<int>(::getpid());
  subject.device_name = gpu != nullptr ? gpu->name() : setup.machine.cpu;
  subject.device_memory = setup.machine.memory_total;
  if (const auto memory = setup.backend->device_memory()) subject.device_memory = memory->total;
  if (gpu != nullptr) {
    const profile::GpuShape shape = gpu->shape();
    subject.compute_major = shape.compute_major;
    subject.compute_minor = shape.compute_minor;
    subject.processors = shape.processors;
  }
  return subject;
}

// The number of the GPU that ran the steps; 0 on a CPU.
int device_of(const profile::Timeline& timeline) {
  return timeline.events.empty() ? 0 : static_cast<int>(timeline.events.front().activity.device);
}

// Whether training images that the CPU decodes could be left to the GPU.
bool gpu_could_decode(const Setup& setup) {
  if (setup.synthetic() || setup.decoding.decoder || setup.config.device.input_copy != "auto") return false;
  Config config = setup.config;
  config.data.decode = "gpu";
  try {
    return resolve_decoder(config, *setup.backend) != nullptr;
  } catch (const Error&) {
    return false;
  }
}

// What advice may take for granted.
profile::RunFacts facts_of(const Setup& setup, const data::BatchSource& batches,
                           const profile::SessionOptions& recorded) {
  const Config& config = setup.config;
  Config automatic = config;
  automatic.device.dtype = "auto";
  const graph::DType quickest = resolve_dtype(automatic, *setup.backend).dtype;
  profile::RunFacts facts;
  facts.gpu = setup.backend->device_memory().has_value();
  facts.synthetic = setup.synthetic();
  if (!setup.synthetic()) facts.shards = setup.train_records->kind() != std::string_view("image folder");
  facts.gpu_decodes = setup.decoding.decoder != nullptr;
  facts.gpu_could = gpu_could_decode(setup);
  facts.workers = config.data.workers;
  facts.cores = setup.machine.cores_allowed;
  facts.threads = config.device.threads > 0 ? config.device.threads : setup.machine.cores_allowed;
  facts.batch = config.optimizer.batch_size;
  facts.ranks = config.ranks;
  facts.reading = batches.reading_share();
  facts.histograms = recorded.covers(config.run.histograms_every);
  if (!config.run.quiet) facts.log_every = config.run.log_every;
  facts.deterministic = config.device.deterministic;
  facts.fused = !config.device.no_fuse;
  facts.narrower = graph::size_of(quickest) < graph::size_of(setup.dtype);
  return facts;
}

struct Average {
  const char *key, *words;
  std::optional<double> value;
};

std::vector<Average> list_of(const profile::GpuAverages& averages) {
  return {{"sm_pct", "multiprocessors", averages.sm_pct},
          {"tensor_pct", "tensor cores", averages.tensor_pct},
          {"fp32_pct", "FP32", averages.fp32_pct},
          {"fp16_pct", "FP16", averages.fp16_pct},
          {"dram_pct", "DRAM", averages.dram_pct}};
}

nlohmann::ordered_json to_json(const profile::GpuAverages& averages) {
  nlohmann::ordered_json json = {{"seconds", averages.seconds}};
  for (const Average& average : list_of(averages)) {
    if (average.value) json[average.key] = *average.value;
  }
  return json;
}

// "multiprocessors 97.1%, tensor cores 31.0%"
std::string text_of(const profile::GpuAverages& averages) {
  std::string text;
  for (const Average& average : list_of(averages)) {
    if (average.value)
      text += fmt::format("{}{} {:.1f}%", text.empty() ? "" : ", ", average.words, *average.value);
  }
  return text;
}

// "core utilisation, 412 kernels of a step weighted by their cycles: tensor cores computing 31.0%; of their
// peak instructions FMA 8.9%, tensor 1.0%; 41.2 GiB of DRAM traffic". Counters that are missing are omitted.
std::string text_of(const profile::CoreUtilisation& use) {
  std::string pipes;
  const std::pair<const char*, const std::optional<double>*> shares[] = {
      {"FMA", &use.fma}, {"FP16", &use.fp16}, {"tensor", &use.tensor}, {"SFU", &use.sfu}};
  for (const auto& [name, share] : shares)
    if (*share) pipes += fmt::format("{}{} {:.1f}%", pipes.empty() ? "" : ", ", name, **share);
  std::string text = fmt::format("core utilisation, {} of a step weighted by their cycles: ",
                                 counted(static_cast<std::int64_t>(use.kernels), "kernel"));
  if (use.tensor_active) text += fmt::format("tensor cores computing {:.1f}%; ", *use.tensor_active);
  text += "of their peak instructions " + pipes;
  if (use.dram_bytes)
    text += fmt::format("; {} of DRAM traffic", format_bytes(static_cast<std::uint64_t>(*use.dram_bytes)));
  return text;
}

}  // namespace

Profiling::Profiling(const profile::SessionOptions& options, const Setup& setup, int rank, int ranks)
    : options_(options),
      rank_(rank),
      ranks_(ranks),
      ceilings_(profile::measure_ceilings(*setup.backend, setup.dtype)),
      session_(options, *setup.backend) {}

void Profiling::attach(Trainer& trainer, profile::Telemetry& telemetry) {
  session_.on_window(
      [&telemetry] {
        telemetry.restart();
        if (telemetry.gpu() != nullptr) telemetry.gpu()->begin_averages();
      },
      [this, &telemetry] {
        sampled_ = telemetry.summary();
        if (telemetry.gpu() != nullptr) averages_ = telemetry.gpu()->end_averages();
      });
  trainer.profile(session_);
}

void Profiling::finish(const Setup& setup, const data::BatchSource& batches,
                       const std::filesystem::path& folder, profile::Telemetry& telemetry, std::FILE* out) {
  const profile::Profile profile = session_.finish(ceilings_, sampled_.value_or(profile::TelemetrySummary{}),
                                                   facts_of(setup, batches, options_));
  if (profile.timeline.steps.empty()) {
    if (out != nullptr)
      fmt::print(out, "\nno profile: the run ended before step {}, the first to be recorded\n",
                 options_.start);
    return;
  }
  const Config& config = setup.config;
  nlohmann::ordered_json facts = {{"schema", 1},
                                  {"kind", "profile"},
                                  {"time", utc_timestamp()},
                                  {"redline", program_facts()},
                                  {"device", setup.backend->description()},
                                  {"model", config.model.name},
                                  {"dtype", config.device.dtype},
                                  {"batch", config.optimizer.batch_size},
                                  {"accumulate", config.optimizer.accumulate},
                                  {"image_size", config.model.image_size},
                                  {"data", setup.data_text()}};
  const bool averaged = averages_ && averages_->seconds >= profile::kShortestAverages;
  if (averaged) facts["device_averages"] = to_json(*averages_);
  profile::Subject subject = subject_of(setup, telemetry.gpu());
  subject.rank = rank_;
  subject.world_size = ranks_;
  subject.device = device_of(profile.timeline);
  const auto files =
      profile::write_profile(profile, subject, telemetry.samples(),
                             facts.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace),
                             options_.most_trace_bytes, folder);
  if (out == nullptr) return;
  fmt::print(out, "\n{}\n", profile::summary_text(profile.summary, kRowsShown));
  if (!profile.counted.empty()) {
    fmt::print(out, "{}\n\n", text_of(profile::core_utilisation(profile.counted)));
  }
  if (averaged) {
    fmt::print(out, "the whole device, of its peak: {}\n\n", text_of(*averages_));
  } else if (averages_ && options_.counters && profile.counted.empty()) {
    fmt::print(out, "averages of the whole device need {} s of recorded steps: more --steps\n\n",
               profile::kShortestAverages);
  }
  for (const std::string& file : files) fmt::print(out, "{}\n", (folder / file).string());
}

}  // namespace redline::train
