// redline doctor: what this machine has, what is missing, and what to do about it.
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "backend/backend.h"
#include "backend/cpu/onednn_info.h"
#include "backend/cuda_libraries.h"
#include "backend/image_decoder.h"
#include "base/build_info.h"
#include "base/error.h"
#include "base/machine.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/gpu_findings.h"

namespace redline::cli {
namespace {

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

const char* name_of(Status status) {
  switch (status) {
    case Status::ok:
      return "ok";
    case Status::note:
      return "note";
    case Status::missing:
      return "missing";
  }
  return "";
}

Finding check_cpu(const Machine& machine) {
  Finding finding{"CPU", Status::ok, machine.cpu.empty() ? "unknown model" : machine.cpu, ""};
  if (!machine.features.avx2) {
    finding.status = Status::note;
    finding.advice = "no AVX2: training works, but many times slower than on a CPU of the last ten years";
  }
  return finding;
}

Finding check_cores(const Machine& machine) {
  Finding finding{"cores", Status::ok, fmt::format("{}", machine.cores_total), ""};
  if (machine.cores_allowed < machine.cores_total) {
    finding.status = Status::note;
    finding.value = fmt::format("{} of {} allowed", machine.cores_allowed, machine.cores_total);
    finding.advice = "CPU affinity or a cgroup limits this process; request more if that is a mistake";
  }
  return finding;
}

Finding check_memory(const Machine& machine) {
  Finding finding{
      "memory", Status::ok,
      fmt::format("{} available of {}{}", format_bytes(machine.memory_available),
                  format_bytes(machine.memory_total), machine.memory_limited ? " (cgroup limit)" : ""),
      ""};
  if (machine.memory_available < 4 * kGiB) {
    finding.status = Status::note;
    finding.advice = "low for training: keep --batch-size and --image-size small";
  }
  return finding;
}

Finding check_disk() {
  std::error_code error;
  const auto space = std::filesystem::space(".", error);
  if (error) return {"disk", Status::note, "unknown: " + error.message(), "run from a folder that exists"};
  Finding finding{"disk", Status::ok, fmt::format("{} free here", format_bytes(space.available)), ""};
  if (space.available < 5 * kGiB) {
    finding.status = Status::note;
    finding.advice = "checkpoints of ResNet-50 take about 200 MB each; free some space or set --output-dir";
  }
  return finding;
}

Finding check_bf16(const backend::OneDnnInfo& onednn) {
  if (onednn.native_bf16) return {"bf16", Status::ok, "native on this CPU", ""};
  return {"bf16", Status::note, "not native on this CPU",
          "on the CPU, stay with fp32: bf16 would be emulated"};
}

Finding check_jpeg_decoder(backend::Backend& backend) {
  try {
    return {"JPEG decoder", Status::ok, backend.make_image_decoder()->description(), ""};
  } catch (const UnavailableError& why) {
    return {"JPEG decoder", Status::note, "the CPU decodes images", why.what()};
  }
}

// Whether this program can use the GPU: loads the backend as training would.
std::vector<Finding> check_cuda_backend() {
  try {
    backend::DeviceOptions options;
    options.device = "cuda";
    const auto backend = backend::make_backend(options);
    return {{"CUDA backend", Status::ok, backend->description(), ""}, check_jpeg_decoder(*backend)};
  } catch (const UnavailableError& why) {
    return {{"CUDA backend", Status::missing, "training uses the CPU", why.what()}};
  }
}

std::vector<Finding> check_gpus(const GpuProbe& probe) {
  GpuFindings findings = judge_gpus(probe);
  if (!findings.usable) return std::move(findings.list);
  for (Finding& finding : judge_cudnn(backend::find_cuda_library("libcudnn.so.9")))
    findings.list.push_back(std::move(finding));
  for (Finding& finding : check_cuda_backend()) findings.list.push_back(std::move(finding));
  return std::move(findings.list);
}

std::vector<Finding> examine(const Machine& machine) {
  const backend::OneDnnInfo onednn = backend::onednn_info();
  std::vector<Finding> findings{
      check_cpu(machine),
      {"instructions", Status::ok, describe(machine.features), ""},
      check_cores(machine),
      check_memory(machine),
      check_disk(),
      {"oneDNN", Status::ok, fmt::format("{}, kernels for {}", onednn.version, onednn.isa), ""},
      check_bf16(onednn),
  };
  for (Finding& finding : check_gpus(probe_gpus())) findings.push_back(std::move(finding));
  return findings;
}

void print_text(const Machine& machine, const std::vector<Finding>& findings) {
  fmt::print("redline {} on {}: {}, {}\n\n", build_info().version, machine.hostname,
             machine.os.empty() ? "unknown system" : machine.os, machine.kernel);
  for (const Finding& finding : findings) {
    fmt::print("  {:<8} {:<13} {}\n", name_of(finding.status), finding.name, finding.value);
    if (!finding.advice.empty()) fmt::print("  {:<8} {:<13} -> {}\n", "", "", finding.advice);
  }
}

void print_json(const Machine& machine, const std::vector<Finding>& findings) {
  nlohmann::ordered_json page;
  page["schema"] = 1;
  page["version"] = build_info().version;
  page["commit"] = build_info().commit;
  page["build"] = build_info().build_type;
  page["machine"] = {{"hostname", machine.hostname},
                     {"os", machine.os},
                     {"kernel", machine.kernel},
                     {"cpu", machine.cpu},
                     {"cores_total", machine.cores_total},
                     {"cores_allowed", machine.cores_allowed},
                     {"memory_total_bytes", machine.memory_total},
                     {"memory_available_bytes", machine.memory_available}};
  page["findings"] = nlohmann::ordered_json::array();
  for (const Finding& finding : findings) {
    page["findings"].push_back({{"name", finding.name},
                                {"status", name_of(finding.status)},
                                {"value", finding.value},
                                {"advice", finding.advice}});
  }
  // Host and device names may hold invalid UTF-8, which is replaced.
  fmt::print("{}\n", page.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

}  // namespace

void add_doctor(CLI::App& app, Context& context) {
  CLI::App& command = add_command(app, "doctor", "Show what this machine has, what is missing and what to do",
                                  {"redline doctor", "redline doctor --json"});
  const auto json = std::make_shared<bool>(false);
  command.add_flag("--json", *json, "Print JSON for programs to read");
  on_run(command, context, [json] {
    const Machine machine = inspect_machine();
    const std::vector<Finding> findings = examine(machine);
    *json ? print_json(machine, findings) : print_text(machine, findings);
    return 0;
  });
}

}  // namespace redline::cli
