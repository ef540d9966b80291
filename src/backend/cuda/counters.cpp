#include "backend/cuda/trace.h"

#include <cuda.h>
#include <cupti_profiler_host.h>
#include <cupti_profiler_target.h>
#include <cupti_range_profiler.h>
#include <cupti_target.h>

#include <limits>

#include "backend/cuda/device.h"
#include "base/error.h"
#include "base/stacks.h"

namespace redline::backend::cuda {
namespace {

// One of the library's structures, with its size filled in.
#define CUPTI_PARAMS(type, name) \
  type name{};                   \
  name.structSize = type##_STRUCT_SIZE

std::string kernel_name(CUgraphNode node) {
  CUDA_KERNEL_NODE_PARAMS params{};
  const char* name = nullptr;
  if (cuGraphKernelNodeGetParams(node, &params) != CUDA_SUCCESS) return "unknown";
  const bool found = params.kern != nullptr ? cuKernelGetName(&name, params.kern) == CUDA_SUCCESS
                                            : cuFuncGetName(&name, params.func) == CUDA_SUCCESS;
  return found && name != nullptr ? demangled(name) : "unknown";
}

// The kernels of one group, in order: found by capturing it, which runs nothing.
void plan_kernels(GroupLauncher& groups, std::size_t i, std::vector<KernelCounts>& kernels) {
  const Graph graph = capture_graph(groups.stream(), [&] { groups.launch_group(i); });
  for (const cudaGraphNode_t node : nodes_of(graph.get())) {  // a chain, in the order of capture
    cudaGraphNodeType type{};
    if (cudaGraphNodeGetType(node, &type) == cudaSuccess && type == cudaGraphNodeTypeKernel)
      kernels.push_back({kernel_name(node), &groups.lead(i), {}});
  }
}

class RangeProfiler {
 public:
  explicit RangeProfiler(const SharedLibrary& library) : library_(library) {
    check_cuda(cudaFree(nullptr), "waking the device");
    if (cuCtxGetCurrent(&context_) != CUDA_SUCCESS) throw UnavailableError("no counters: no context");
    CUPTI_PARAMS(CUpti_Profiler_Initialize_Params, initialize);
    call("cuptiProfilerInitialize", initialize);
    CUPTI_PARAMS(CUpti_Device_GetChipName_Params, chip);
    chip.deviceIndex = static_cast<std::size_t>(current_device());
    call("cuptiDeviceGetChipName", chip);
    CUPTI_PARAMS(CUpti_Profiler_GetCounterAvailability_Params, available);
    available.ctx = context_;
    call("cuptiProfilerGetCounterAvailability", available);
    availability_.resize(available.counterAvailabilityImageSize);
    available.pCounterAvailabilityImage = availability_.data();
    call("cuptiProfilerGetCounterAvailability", available);
    CUPTI_PARAMS(CUpti_Profiler_Host_Initialize_Params, host);
    host.profilerType = CUPTI_PROFILER_TYPE_RANGE_PROFILER;
    host.pChipName = chip.pChipName;
    host.pCounterAvailabilityImage = availability_.data();
    call("cuptiProfilerHostInitialize", host);
    host_ = host.pHostObject;
  }
  ~RangeProfiler() {
    try {
      if (profiler_ != nullptr) {
        CUPTI_PARAMS(CUpti_RangeProfiler_Disable_Params, disable);
        try_call("cuptiRangeProfilerDisable", disable);
      }
      CUPTI_PARAMS(CUpti_Profiler_Host_Deinitialize_Params, end);
      try_call("cuptiProfilerHostDeinitialize", end);
      CUPTI_PARAMS(CUpti_Profiler_DeInitialize_Params, finish);
      try_call("cuptiProfilerDeInitialize", finish);
    } catch (const UnavailableError&) {  // a function is missing
    }
  }
  RangeProfiler(const RangeProfiler&) = delete;
  RangeProfiler& operator=(const RangeProfiler&) = delete;

  bool knows(const std::string& metric) const {
    CUPTI_PARAMS(CUpti_Profiler_Host_GetMetricProperties_Params, properties);
    properties.pMetricName = metric.c_str();
    return try_call("cuptiProfilerHostGetMetricProperties", properties) == CUPTI_SUCCESS;
  }

  // Prepares to count these metrics in up to `kernels` kernels.
  void configure(std::vector<const char*> metrics, std::size_t kernels) {
    metrics_ = std::move(metrics);
    CUPTI_PARAMS(CUpti_Profiler_Host_ConfigAddMetrics_Params, add);
    add.ppMetricNames = metrics_.data();
    add.numMetrics = metrics_.size();
    call("cuptiProfilerHostConfigAddMetrics", add);
    CUPTI_PARAMS(CUpti_Profiler_Host_GetConfigImageSize_Params, size);
    call("cuptiProfilerHostGetConfigImageSize", size);
    config_.resize(size.configImageSize);
    CUPTI_PARAMS(CUpti_Profiler_Host_GetConfigImage_Params, image);
    image.configImageSize = config_.size();
    image.pConfigImage = config_.data();
    call("cuptiProfilerHostGetConfigImage", image);

    CUPTI_PARAMS(CUpti_RangeProfiler_Enable_Params, enable);
    enable.ctx = context_;
    call("cuptiRangeProfilerEnable", enable);
    profiler_ = enable.pRangeProfilerObject;
    CUPTI_PARAMS(CUpti_RangeProfiler_GetCounterDataSize_Params, data);
    data.pMetricNames = metrics_.data();
    data.numMetrics = metrics_.size();
    data.maxNumOfRanges = kernels;
    data.maxNumRangeTreeNodes = static_cast<std::uint32_t>(kernels);
    call("cuptiRangeProfilerGetCounterDataSize", data);
    data_.resize(data.counterDataSize);
    CUPTI_PARAMS(CUpti_RangeProfiler_CounterDataImage_Initialize_Params, clear);
    clear.counterDataSize = data_.size();
    clear.pCounterData = data_.data();
    call("cuptiRangeProfilerCounterDataImageInitialize", clear);
    CUPTI_PARAMS(CUpti_RangeProfiler_SetConfig_Params, set);
    set.configSize = config_.size();
    set.pConfig = config_.data();
    set.counterDataImageSize = data_.size();
    set.pCounterDataImage = data_.data();
    set.range = CUPTI_AutoRange;          // each kernel by itself
    set.replayMode = CUPTI_KernelReplay;  // repeated by the driver, which restores memory
    set.maxRangesPerPass = kernels;
    set.numNestingLevels = 1;
    set.minNestingLevel = 1;
    call("cuptiRangeProfilerSetConfig", set);
  }

  void start() {
    CUPTI_PARAMS(CUpti_RangeProfiler_Start_Params, params);
    call("cuptiRangeProfilerStart", params);
  }
  void stop() {
    CUPTI_PARAMS(CUpti_RangeProfiler_Stop_Params, params);
    call("cuptiRangeProfilerStop", params);
    CUPTI_PARAMS(CUpti_RangeProfiler_DecodeData_Params, decode);
    call("cuptiRangeProfilerDecodeData", decode);
  }

  std::size_t counted() const {
    CUPTI_PARAMS(CUpti_RangeProfiler_GetCounterDataInfo_Params, info);
    info.pCounterDataImage = data_.data();
    info.counterDataImageSize = data_.size();
    call("cuptiRangeProfilerGetCounterDataInfo", info);
    return info.numTotalRanges;
  }
  std::vector<double> values(std::size_t kernel) {
    std::vector<double> found(metrics_.size());
    CUPTI_PARAMS(CUpti_Profiler_Host_EvaluateToGpuValues_Params, evaluate);
    evaluate.pCounterDataImage = data_.data();
    evaluate.counterDataImageSize = data_.size();
    evaluate.rangeIndex = kernel;
    evaluate.ppMetricNames = metrics_.data();
    evaluate.numMetrics = metrics_.size();
    evaluate.pMetricValues = found.data();
    call("cuptiProfilerHostEvaluateToGpuValues", evaluate);
    return found;
  }

 private:
  // Calls of the library take one structure that begins with its own size, and may name one of its objects.
  template <typename Params>
  CUptiResult try_call(const char* name, Params& params) const {
    CUptiResult (*const function)(Params*) = library_.find(name);
    if (function == nullptr) throw UnavailableError("no counters: this CUPTI lacks {}", name);
    if constexpr (requires { params.pHostObject; }) params.pHostObject = host_;
    if constexpr (requires { params.pRangeProfilerObject; }) params.pRangeProfilerObject = profiler_;
    return function(&params);
  }

  template <typename Params>
  void call(const char* name, Params& params) const {
    const CUptiResult result = try_call(name, params);
    if (result == CUPTI_SUCCESS) return;
    if (result == CUPTI_ERROR_INSUFFICIENT_PRIVILEGES ||
        result == CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES)
      throw UnavailableError(
          "no counters: the driver keeps them for administrators; run as root (CAP_SYS_ADMIN), or have the "
          "module option NVreg_RestrictProfilingToAdminUsers=0 set (it shows as RmProfilingAdminOnly in "
          "/proc/driver/nvidia/params)");
    const char* text = nullptr;
    CUptiResult (*const explain)(CUptiResult, const char**) = library_.find("cuptiGetResultString");
    if (explain != nullptr) explain(result, &text);
    throw UnavailableError("no counters: {}: {}", name, text == nullptr ? "unknown error" : text);
  }
  const SharedLibrary& library_;
  CUcontext context_ = nullptr;
  CUpti_Profiler_Host_Object* host_ = nullptr;
  CUpti_RangeProfiler_Object* profiler_ = nullptr;
  std::vector<const char*> metrics_;
  std::vector<std::uint8_t> availability_, config_, data_;
};

#undef CUPTI_PARAMS

}  // namespace

std::vector<KernelCounts> count_kernels(const SharedLibrary& cupti, GroupLauncher& groups, Section section,
                                        const std::vector<std::string>& metrics) {
  check_cuda(cudaDeviceSynchronize(), "waiting for the device");
  RangeProfiler profiler(cupti);
  std::vector<const char*> known;
  std::vector<std::size_t> place;  // of each known one in `metrics`
  for (std::size_t i = 0; i < metrics.size(); ++i) {
    if (!profiler.knows(metrics[i])) continue;
    known.push_back(metrics[i].c_str());
    place.push_back(i);
  }
  if (known.empty()) throw UnavailableError("no counters: the device has none of the requested ones");
  const auto [begin, end] = groups.groups_of(section);
  std::vector<KernelCounts> planned;
  for (std::size_t i = begin; i < end; ++i) plan_kernels(groups, i, planned);
  profiler.configure(known, planned.size());
  groups.open_run();
  profiler.start();
  for (std::size_t i = begin; i < end; ++i) groups.launch_group(i);
  wait_for(groups.stream());
  profiler.stop();
  groups.close_run();
  std::vector<KernelCounts> counts;
  const std::size_t counted = profiler.counted();
  // Ranges are numbered in the order in which kernels run. If there are more or fewer than planned, it is not
  // known which is which.
  const bool matched = counted == planned.size();
  for (std::size_t i = 0; i < counted; ++i) {
    KernelCounts kernel = matched ? planned[i] : KernelCounts{"unknown", nullptr, {}};
    kernel.values.assign(metrics.size(), std::numeric_limits<double>::quiet_NaN());
    const std::vector<double> values = profiler.values(i);
    for (std::size_t j = 0; j < place.size(); ++j) kernel.values[place[j]] = values[j];
    counts.push_back(std::move(kernel));
  }
  return counts;
}

}  // namespace redline::backend::cuda
