#include "profile/counters.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace redline::profile {
namespace {

constexpr std::string_view kOfPeak = ".avg.pct_of_peak_sustained_elapsed";
constexpr std::string_view kPrefix = "sm__inst_executed_pipe_";

// Names of a pipe's counter, the usual one first. If it is missing, the others are parts that add up to it.
struct Pipe {
  std::string_view whole;
  std::vector<std::string_view> parts;
};
const Pipe kFma{"fma", {"fmaheavy", "fmalite"}};
const Pipe kFp16{"fp16", {"fma_type_fp16"}};
const Pipe kTensor{"tensor", {"tensor_op_hmma", "tensor_op_gmma", "tensor_op_imma", "tensor_op_dmma"}};
const Pipe kSfu{"xu", {}};
constexpr const char* kCycles[] = {"gpc__cycles_elapsed.max", "sm__cycles_elapsed.max"};
const std::string kTensorActive = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed";
constexpr const char* kDram[] = {"dram__bytes_read.sum", "dram__bytes_write.sum"};

std::string metric_of(std::string_view pipe) { return fmt::format("{}{}{}", kPrefix, pipe, kOfPeak); }

std::optional<double> find(const CountedKernel& kernel, const std::string& metric) {
  const auto found = kernel.values.find(metric);
  return found == kernel.values.end() || !std::isfinite(found->second) ? std::nullopt
                                                                       : std::optional(found->second);
}

std::optional<double> use_of(const CountedKernel& kernel, const Pipe& pipe) {
  if (const auto whole = find(kernel, metric_of(pipe.whole))) return whole;
  std::optional<double> sum;
  for (const std::string_view part : pipe.parts) {
    if (const auto value = find(kernel, metric_of(part))) sum = sum.value_or(0) + *value;
  }
  if (sum) sum = std::min(*sum, 100.0);
  return sum;
}

std::optional<double> cycles_of(const CountedKernel& kernel) {
  for (const char* metric : kCycles) {
    const auto cycles = find(kernel, metric);
    if (cycles && *cycles > 0) return cycles;
  }
  return {};
}

const char* unit_of(const std::string& metric) {
  if (metric.ends_with(kOfPeak)) return "%";
  if (metric.starts_with("dram__bytes")) return "byte";
  return metric.find("cycles") != std::string::npos ? "cycle" : "";
}

std::string quoted(const std::string& text) {
  std::string safe = "\"";
  for (const char c : text) {
    if (c == '"') safe += '"';
    safe += c;
  }
  return safe + '"';
}

}  // namespace

const std::vector<std::string>& profile_metrics() {
  // Every GPU from Ampere on has all of these (FP16 under one of two names). Each counter more repeats
  // kernels more often.
  static const std::vector<std::string> all = {
      kCycles[0],          kDram[0],          kDram[1],
      metric_of("fma"),    metric_of("fp16"), metric_of("fma_type_fp16"),
      metric_of("tensor"), metric_of("xu"),   kTensorActive};
  return all;
}

std::vector<CountedKernel> counted_kernels(const std::vector<backend::KernelCounts>& counts,
                                           const std::vector<std::string>& metrics) {
  std::vector<CountedKernel> kernels;
  for (const backend::KernelCounts& count : counts) {
    CountedKernel kernel;
    kernel.name = count.name;
    backend::Activity by;
    by.op = count.op;
    if (count.op != nullptr) kernel.op = label_of(by);
    for (std::size_t i = 0; i < std::min(metrics.size(), count.values.size()); ++i) {
      if (std::isfinite(count.values[i])) kernel.values[metrics[i]] = count.values[i];
    }
    kernels.push_back(std::move(kernel));
  }
  return kernels;
}

CoreUtilisation core_utilisation(const std::vector<CountedKernel>& kernels) {
  CoreUtilisation sum;
  for (const CountedKernel& kernel : kernels) {
    const auto cycles = cycles_of(kernel);
    const auto fma = use_of(kernel, kFma), fp16 = use_of(kernel, kFp16), tensor = use_of(kernel, kTensor),
               sfu = use_of(kernel, kSfu);
    if (!cycles || !(fma || fp16 || tensor || sfu)) {
      ++sum.left_out;
      continue;
    }
    ++sum.kernels;
    sum.cycles += *cycles;
    const auto add = [](std::optional<double>& total, const std::optional<double>& value, double weight) {
      if (value) total = total.value_or(0) + weight * *value;
    };
    add(sum.fma, fma, *cycles);
    add(sum.fp16, fp16, *cycles);
    add(sum.tensor, tensor, *cycles);
    add(sum.sfu, sfu, *cycles);
    add(sum.tensor_active, find(kernel, kTensorActive), *cycles);
    for (const char* metric : kDram) add(sum.dram_bytes, find(kernel, metric), 1);
  }
  for (auto* share : {&sum.fma, &sum.fp16, &sum.tensor, &sum.sfu, &sum.tensor_active})
    if (*share) **share /= sum.cycles;
  return sum;
}

nlohmann::ordered_json to_json(const CoreUtilisation& use) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  const std::pair<const char*, const std::optional<double>*> shares[] = {
      {"fma_pct", &use.fma},
      {"fp16_pct", &use.fp16},
      {"tensor_pct", &use.tensor},
      {"sfu_pct", &use.sfu},
      {"tensor_active_pct", &use.tensor_active}};
  for (const auto& [key, share] : shares)
    if (*share) json[key] = **share;
  json["cycles"] = use.cycles;
  if (use.dram_bytes) json["dram_bytes"] = *use.dram_bytes;
  return json;
}

std::string counters_csv(const std::vector<CountedKernel>& kernels, const Subject& subject) {
  std::string text =
      "\"ID\",\"Process ID\",\"Process Name\",\"Host Name\",\"Kernel Name\",\"Kernel "
      "Time\",\"Context\",\"Stream\","
      "\"Section Name\",\"Metric Name\",\"Metric Unit\",\"Metric Value\"\n";
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    for (const auto& [metric, value] : kernels[i].values) {
      text += fmt::format("\"{}\",\"{}\",\"redline\",{},{},\"\",\"1\",\"\",{},\"{}\",\"{}\",\"{:.6f}\"\n", i,
                          subject.process, quoted(subject.host), quoted(kernels[i].name),
                          quoted(kernels[i].op), metric, unit_of(metric), value);
    }
  }
  return text;
}

}  // namespace redline::profile
