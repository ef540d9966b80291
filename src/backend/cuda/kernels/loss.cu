// Softmax cross-entropy with label smoothing and mixed labels: one block per row, then one block that adds
// the rows up in a fixed order.
#include "backend/cuda/kernels/vec.cuh"
#include "graph/op.h"

namespace redline::backend::cuda {
namespace {

constexpr int kLossThreads = 128;

__device__ float sum_of(float value) {
  return block_reduce<kLossThreads>(value, 0.0F, [](float a, float b) { return a + b; });
}

template <typename T>
__global__ void __launch_bounds__(kLossThreads) loss_kernel(Loss args) {
  begin_kernel();
  const int row = static_cast<int>(blockIdx.x);
  const float* x = args.logits + std::int64_t{row} * args.classes;
  T* gradient =
      args.gradient == nullptr ? nullptr : static_cast<T*>(args.gradient) + std::int64_t{row} * args.classes;
  const int label = args.labels[row];
  float* result = args.row_results + row * 4;
  if (label < 0) {
    for (int k = threadIdx.x; gradient != nullptr && k < args.classes; k += kLossThreads) {
      gradient[k] = from_float<T>(0.0F);
    }
    if (threadIdx.x < 4) result[threadIdx.x] = 0.0F;
    return;
  }
  float valid = 0.0F;
  for (int i = threadIdx.x; i < args.rows; i += kLossThreads) valid += args.labels[i] >= 0 ? 1.0F : 0.0F;
  valid = sum_of(valid);
  const bool mixed = args.other_labels != nullptr && args.other_labels[row] >= 0;
  const int other = mixed ? args.other_labels[row] : label;
  const float weight = mixed ? args.label_weights[row] : 1.0F;
  const int counted = weight >= 0.5F ? label : other;  // for accuracy
  const float target = x[counted];
  float top = -INFINITY, sum_of_logits = 0.0F, above = 0.0F;
  for (int k = threadIdx.x; k < args.classes; k += kLossThreads) {
    top = fmaxf(top, x[k]);
    sum_of_logits += x[k];
    above += !(x[k] <= target) || (x[k] == target && k < counted) ? 1.0F : 0.0F;
  }
  top = block_reduce<kLossThreads>(top, -INFINITY, [](float a, float b) { return fmaxf(a, b); });
  sum_of_logits = sum_of(sum_of_logits);
  above = sum_of(above);
  float sum = 0.0F;
  for (int k = threadIdx.x; k < args.classes; k += kLossThreads) sum += expf(x[k] - top);
  sum = sum_of(sum);
  const float log_sum = logf(sum) + top;
  if (gradient != nullptr) {
    const float scale = (args.loss_scale == nullptr ? 1.0F : *args.loss_scale) / valid;
    const float off = args.smoothing / static_cast<float>(args.classes);
    for (int k = threadIdx.x; k < args.classes; k += kLossThreads) {
      const float on = (k == label ? weight : 0.0F) + (k == other ? 1.0F - weight : 0.0F);
      gradient[k] = from_float<T>(scale * (expf(x[k] - log_sum) - off - (1.0F - args.smoothing) * on));
    }
  }
  if (threadIdx.x != 0) return;
  const float nll = log_sum - weight * x[label] - (1.0F - weight) * x[other];
  const float mean_nll = log_sum - sum_of_logits / static_cast<float>(args.classes);
  const float most = static_cast<float>(args.classes < 5 ? args.classes : 5);
  result[graph::kLossSum] = (1.0F - args.smoothing) * nll + args.smoothing * mean_nll;
  result[graph::kCorrect1] = !isnan(target) && above < 1.0F ? 1.0F : 0.0F;
  result[graph::kCorrect5] = !isnan(target) && above < most ? 1.0F : 0.0F;
  result[graph::kSamples] = 1.0F;
}

// One warp per metric.
__global__ void metrics_kernel(int rows, const float* row_results, float* metrics) {
  begin_kernel();
  const int metric = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  double sum = 0.0;
#pragma unroll 8
  for (int row = lane; row < rows; row += 32) sum += static_cast<double>(row_results[row * 4 + metric]);
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(~0U, sum, offset);
  if (lane == 0) metrics[metric] = static_cast<float>(sum);
}

static_assert(graph::kLossMetrics == 4);

}  // namespace

void softmax_cross_entropy(Type gradient_type, const Loss& args, cudaStream_t stream) {
  dispatch_type(gradient_type, [&]<typename T>() {
    launch(loss_kernel<T>, {static_cast<unsigned>(args.rows), kLossThreads, 0, true}, stream, args);
  });
  launch(metrics_kernel, {1, 32 * graph::kLossMetrics, 0, true}, stream, args.rows, args.row_results,
         args.metrics);
}

}  // namespace redline::backend::cuda
