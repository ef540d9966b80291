#include "cli/gpu_findings.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/text.h"

namespace redline::cli {
namespace {

constexpr int kNeededCuda = 13000;  // in the driver's encoding
constexpr const char* kNeededDriver = "580";
constexpr int kNeededCompute = 75;  // Turing
constexpr double kFullShare = 0.8;  // of a GPU's memory in use: worth mentioning

constexpr const char* kGiveGpus =
    "start it with --gpus all (docker), --device nvidia.com/gpu=all (podman) or --nv (apptainer)";
constexpr const char* kUsesCpu = "training uses the CPU";

std::string cuda_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

// The driver's library was not found.
std::string advise_driver(const GpuSurroundings& around) {
  if (around.wsl && around.wsl_driver)
    return "this is WSL 2, and the driver is in /usr/lib/wsl/lib, which the loader does not search: set "
           "LD_LIBRARY_PATH=/usr/lib/wsl/lib";
  if (around.wsl)
    return "this is WSL 2: install NVIDIA's driver in Windows (none in Linux), then run 'wsl --update' there";
  // A container shares the host's kernel and its modules.
  if (around.container && around.kernel_driver)
    return fmt::format("this is a container, and its host has a driver: {}", kGiveGpus);
  if (around.container)
    return fmt::format(
        "this is a container, and its host has no NVIDIA driver: install its driver there, then {}",
        kGiveGpus);
  if (around.kernel_driver)
    return "the kernel has the driver, but its library is not installed: install libcuda1 (Debian) or the "
           "libnvidia-compute "
           "package of the same version (Ubuntu)";
  return "to use an NVIDIA GPU, install its driver";
}

// The driver is installed but offers no device.
std::string advise_no_device(const GpuProbe& probe) {
  if (probe.around.hides_devices)
    return fmt::format("CUDA_VISIBLE_DEVICES is '{}': unset it, or set it to a GPU listed by 'nvidia-smi -L'",
                       probe.around.visible_devices);
  if (probe.mig)
    return "MIG mode is on, and no slice can be used: create one with 'nvidia-smi mig -cgi <profile> -C', or "
           "turn MIG off with 'nvidia-smi -mig 0' (both as root)";
  if (probe.around.container && probe.around.kernel_driver)
    return fmt::format("this is a container: {}", kGiveGpus);
  if (!probe.around.kernel_driver && !probe.around.wsl)
    return "the NVIDIA kernel module is not loaded: run 'nvidia-smi'; after an update of driver or kernel, "
           "restart the machine";
  return "run nvidia-smi to see what the driver says";
}

Finding judge_driver(const GpuProbe& probe) {
  Finding finding{
      "driver", Status::ok,
      fmt::format("{}, CUDA up to {}",
                  probe.driver_version.empty() ? "unknown version" : probe.driver_version,
                  probe.cuda_version == 0 ? "an unknown version" : cuda_text(probe.cuda_version))};
  if (probe.cuda_version == 0 || probe.cuda_version >= kNeededCuda) return finding;
  finding.status = Status::missing;
  finding.advice =
      probe.around.wsl
          ? fmt::format("too old: the CUDA backend needs {} or later; update NVIDIA's driver in Windows",
                        kNeededDriver)
          : fmt::format(
                "too old: the CUDA backend needs {} or later; update it, or, on a data center GPU, install "
                "NVIDIA's package cuda-compat-13-0 and set LD_LIBRARY_PATH=/usr/local/cuda-13.0/compat",
                kNeededDriver);
  return finding;
}

bool is_slice(const GpuDevice& device) { return device.name.find(" MIG ") != std::string::npos; }

bool is_served(const GpuDevice& device) {
  return device.compute_major * 10 + device.compute_minor >= kNeededCompute &&
         device.mode != ComputeMode::prohibited;
}

Finding judge_device(const GpuDevice& device, std::size_t number) {
  Finding finding{fmt::format("GPU {}", number), Status::ok,
                  fmt::format("{}, {}, compute {}.{}", device.name, format_bytes(device.memory_total),
                              device.compute_major, device.compute_minor)};
  const auto say = [&](Status status, const std::string& advice) {
    finding.status = std::max(finding.status, status);
    finding.advice += (finding.advice.empty() ? "" : "; ") + advice;
  };
  if (device.compute_major * 10 + device.compute_minor < kNeededCompute) {
    say(Status::missing,
        "not supported: CUDA 13 and cuDNN since 9.11 need compute 7.5 (Turing) or later; train on another "
        "GPU or with --device cpu");
    return finding;
  }
  if (device.mode == ComputeMode::prohibited)
    say(Status::missing,
        fmt::format("its compute mode forbids all work: run 'nvidia-smi -i {} -c DEFAULT' as root", number));
  if (device.mode == ComputeMode::exclusive)
    say(Status::note, fmt::format("exclusive: one process at a time, others fail with 'busy or unavailable'; "
                                  "'nvidia-smi -i {} -c DEFAULT' as root shares it",
                                  number));
  if (is_slice(device)) {
    say(Status::note,
        "a MIG slice, with part of the GPU's speed and memory; a process uses one slice, and "
        "CUDA_VISIBLE_DEVICES=MIG-<uuid> (see 'nvidia-smi -L') selects another");
  } else if (device.memory_free && device.memory_total > 0 &&
             static_cast<double>(*device.memory_free) <
                 (1 - kFullShare) * static_cast<double>(device.memory_total)) {
    say(Status::note,
        fmt::format("only {} free: 'nvidia-smi' lists the processes that use the rest; CUDA_VISIBLE_DEVICES "
                    "selects another GPU, a smaller --batch-size needs less",
                    format_bytes(*device.memory_free)));
  }
  return finding;
}

}  // namespace

GpuFindings judge_gpus(const GpuProbe& probe) {
  if (!probe.has_driver)
    return {{{"GPU", Status::missing, probe.problem,
              fmt::format("{}; {}", kUsesCpu, advise_driver(probe.around))}}};
  GpuFindings findings;
  findings.list.push_back(judge_driver(probe));
  if (probe.devices.empty()) {
    findings.list.push_back(
        {"GPU", Status::missing, probe.problem, fmt::format("{}; {}", kUsesCpu, advise_no_device(probe))});
    return findings;
  }
  for (std::size_t i = 0; i < probe.devices.size(); ++i)
    findings.list.push_back(judge_device(probe.devices[i], i));
  findings.usable =
      findings.list.front().status != Status::missing && std::ranges::any_of(probe.devices, is_served);
  return findings;
}

std::vector<Finding> judge_cudnn(const std::vector<std::filesystem::path>& found) {
  if (found.size() < 2) return {};
  std::string others;
  for (std::size_t i = 1; i < found.size(); ++i) others += (i > 1 ? ", " : "") + found[i].string();
  return {{"cuDNN", Status::note, found.front().string(),
           fmt::format("the first of several; ignored: {}. If their versions differ, keep one, so that all "
                       "programs use the same",
                       others)}};
}

}  // namespace redline::cli
