// The CUDA backend's own kernels, as host functions that put one launch (or two) on a stream. Activations are
// channels-last: a matrix of rows (pixels of all images) by channels. Accesses are 16 bytes wide where
// channels allow. None of them synchronises or allocates, so all can be captured into a CUDA graph.
//
// `?` in a comment on a pointer, or after its name, says that it may be null.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "graph/op.h"

// A device function, always inlined.
#define REDLINE_DEVICE __device__ __forceinline__

namespace redline::backend::cuda {

// The code of this build that the current device runs: machine code for the device, or PTX for an older one,
// compiled by the driver. This code, not the device, decides what kernels can do.
struct DeviceCode {
  int architecture = 0;  // what it was compiled for: 75, 80, 90
  bool hopper = false;   // with the instructions of hopper.cuh, as code for 90a alone has
};
// Runs a kernel to find out. Returns CUDA's error if the build has no code for the device.
cudaError_t find_code(DeviceCode& code);

// The same, found once and kept. Throws InternalError if there is no device.
const DeviceCode& device_code();
// What that code allows: starting a kernel while the one before still runs; kernels written with hopper.cuh;
// arithmetic in bf16 and tf32, and copies by cp.async.
inline bool launches_early() { return device_code().architecture >= 90; }
inline bool has_hopper_kernels() { return device_code().hopper; }
inline bool has_ampere_code() { return device_code().architecture >= 80; }
// The current device's number of multiprocessors, and the shared memory that a block can have, at most that
// of the devices that its code was compiled for. Queried once.
int multiprocessors();
std::size_t block_shared_bytes();

enum class Type : std::uint8_t { f32, f16, bf16 };

struct Matrix {
  Type type;
  std::int64_t rows;
  int channels;
};

// Work space of the reductions: partial sums and the counters of blocks that are done. One launch uses it at
// a time; `counters` must be zero before the first and are left at zero.
struct ReduceSpace {
  float* partials;
  unsigned* counters;
};
std::size_t reduce_partials(const Matrix& matrix);  // floats needed for a matrix
inline constexpr std::size_t kReduceCounters = 4096;

struct Gate {
  const float* affine = nullptr;       // ? gates by scale * y + bias > 0
  const std::uint8_t* mask = nullptr;  // ? gates by bits
};

// sums[2,C]: of y and y^2. With `rough`, the sums of an earlier pass: of y - mean and its square, which is
// more exact if the mean is large.
void channel_sums(const Matrix& m, const void* y, const float* rough /* ? */, float* sums, ReduceSpace space,
                  cudaStream_t stream);

struct NormFinalize {
  int channels;
  double inverse_count;  // 1 / elements per channel
  float unbiased;        // elements / (elements - 1): turns the variance into an unbiased estimate
  float epsilon, momentum;
  bool training;
  const float *sums, *gamma, *beta;  // sums only in training
  float *mean, *var, *affine;
  float* saved;                  // ?
  const float* rough = nullptr;  // ? as given to channel_sums()
};
void norm_finalize(const NormFinalize& args, cudaStream_t stream);

struct AffineAct {
  const void* y = nullptr;
  const float* affine = nullptr;
  const void* shortcut = nullptr;          // ?
  const float* shortcut_affine = nullptr;  // ?
  bool relu = false;
  void* z = nullptr;
  std::uint8_t* mask = nullptr;  // ?
  // Computes `affine` itself, from the sums of a norm in training, instead of norm_finalize().
  bool finalizes = false;
  NormFinalize norm{};
};
void affine_act(const Matrix& m, const AffineAct& args, cudaStream_t stream);

// A norm that a gradient reaches through a gate, and the norm's own gradients: the sum of the gated gradient,
// and of its products with the normalised y.
struct GatedNorm {
  const void* y = nullptr;  // as the gradient
  Gate gate{};
  const float* saved = nullptr;               // [2, C]: mean, 1 / deviation
  float *dbeta = nullptr, *dgamma = nullptr;  // [C] each
};

struct NormGradStats {
  const void* g = nullptr;
  const void* g2 = nullptr;  // ?
  GatedNorm norm{};
  void* masked = nullptr;  // ?
};
void norm_grad_stats(const Matrix& m, const NormGradStats& args, ReduceSpace space, cudaStream_t stream);

struct NormGradApply {
  const void *g, *y;
  Gate gate;
  const float *saved, *gamma, *dgamma, *dbeta;
  void* dy;
};
void norm_grad_apply(const Matrix& m, const NormGradApply& args, cudaStream_t stream);

struct Pool {
  int images, channels, h, w, out_h, out_w, kernel, stride, pad;
};
inline Pool pool_of(const graph::Shape& in, const graph::Shape& out, const graph::PoolAttr& attr) {
  const auto size = [](std::int64_t value) { return static_cast<int>(value); };
  return {size(in.n()),  size(in.c()), size(in.h()), size(in.w()), size(out.h()),
          size(out.w()), attr.kernel,  attr.stride,  attr.pad};
}

// Whether stem_pool() can do it: threads keep their channels from column to column, and counts fit 32 bits.
inline bool is_stem_pool(const Pool& p, std::size_t element_bytes) {
  const int vector = 16 / static_cast<int>(element_bytes);
  return p.kernel == 3 && p.stride == 2 && p.pad == 1 && p.channels % vector == 0 &&
         32 % (p.channels / vector) == 0 &&
         std::int64_t{p.images} * p.out_h * p.out_w * p.channels < std::int64_t{1} << 32;
}

// Whether pooled_norm_grad_apply can do it.
inline bool is_even_stem_pool(const Pool& p, std::size_t element_bytes) {
  return is_stem_pool(p, element_bytes) && p.h == 2 * p.out_h && p.w == 2 * p.out_w;
}

// `picked`: the x that `index` names.
void max_pool(Type type, const Pool& pool, const void* x, const float* affine /* ? */, void* y,
              std::uint8_t* index /* ? */, void* picked /* ? */, cudaStream_t stream);
void max_pool_grad(Type type, const Pool& pool, const void* dy, const std::uint8_t* index, void* dx,
                   cudaStream_t stream);
// max_pool with an affine, for the pool of a stem. Returns false, and does nothing, for any other pool.
bool stem_pool(Type type, const Pool& pool, const void* x, const float* affine, void* y,
               std::uint8_t* index /* ? */, void* picked /* ? */, cudaStream_t stream);

// The gradient of a norm and ReLU in front of a max pool of 3x3, stride 2, pad 1 over an even number of rows
// and columns (is_even_stem_pool), from the pool's gradient and indices: the gradient in between is never
// written. The arguments gate by affine; their `g` is not used.
struct PooledGradient {
  Pool pool;
  const void* dy;
  const std::uint8_t* index;
};
void pooled_norm_grad_apply(Type type, const PooledGradient& pooled, const NormGradApply& args,
                            cudaStream_t stream);

// Means of whole images.
void avg_pool(Type type, int images, int pixels, int channels, const void* x, void* y, cudaStream_t stream);
// Means of windows side by side, cut off at the edge: a pool whose stride is its kernel, without padding. The
// gradient is also that of avg_pool(), with a window as large as the image.
void local_avg_pool(Type type, const Pool& pool, const void* x, void* y, cudaStream_t stream);
void avg_pool_grad(Type type, const Pool& pool, const void* dy, void* dx, cudaStream_t stream);

// relu of one array, relu_grad of dy and the ReLU's y, or add of two, element by element.
void flat(graph::OpKind op, Type type, std::int64_t count, const void* a, const void* b /* ? */, void* y,
          cudaStream_t stream);
// fp32 to `type`, and back.
void cast(Type type, std::int64_t count, const float* x, void* y, cudaStream_t stream);
void widen(Type type, std::int64_t count, const void* x, float* y, cudaStream_t stream);

struct Images {
  std::int64_t count;
  int h, w;
  bool folded;  // written as Layout::folded, else pixel by pixel; four channels, the last zero
};
struct ImageNormalize {
  float scale[3], bias[3];  // x = byte * scale + bias
};
// Bytes NHWC with three channels.
void normalize_image(Type type, const Images& shape, const ImageNormalize& args, const std::uint8_t* images,
                     void* x, cudaStream_t stream);
// fp32 NCHW with three channels.
void pack_image(Type type, const Images& shape, const float* from, void* x, cudaStream_t stream);
// Zeros where the gradient of folded weights has no tap of the convolution.
void clear_folded_padding(Type type, std::int64_t filters, void* dw, cudaStream_t stream);

struct Loss {
  int rows, classes;
  float smoothing;
  const float* logits;
  const std::int32_t* labels;
  const float* loss_scale;           // ? a loss scale of 1 without it
  const std::int32_t* other_labels;  // ? with label_weights, for mixed images
  const float* label_weights;        // ?
  float* row_results = nullptr;      // [rows][4], work space
  float* metrics;
  void* gradient;  // ?
};
void softmax_cross_entropy(Type gradient_type, const Loss& args, cudaStream_t stream);

// y[row][k] = bias[k]
void fill_rows(std::int64_t rows, int columns, const float* bias, float* y, cudaStream_t stream);
// db[k] = sum over rows of dy[row][k]
void column_sums(Type type, int rows, int columns, const void* dy, float* db, cudaStream_t stream);

// A part of one parameter, in a launch that updates many parameters.
struct UpdateChunk {
  float* w = nullptr;
  const void* g = nullptr;
  float* v = nullptr;    // momentum, or Adam's second moment; for an average, the average
  float* m = nullptr;    // ? Adam's first moment
  void* copy = nullptr;  // ? the parameter in the type that convolutions read
  int count = 0;
  int first_chunk = 0, chunks = 0;  // of the parameter this one belongs to
  Type g_type{}, copy_type{};
  float weight_decay = 0.0F;
  float rate = 0.0F;  // multiplies the learning rate
};
inline constexpr int kChunk = 8192;  // elements of a chunk at most

// One launch for all chunks. Changes nothing if `check` says that the step is refused.
struct Updates {
  const UpdateChunk* chunks;
  int count;
  const float *scalars, *check;
  float* partials = nullptr;  // lars, lamb: two floats per chunk, work space
};
struct SgdRule {
  float momentum;
  bool nesterov;
  float trust, epsilon;  // LARS
};
struct AdamRule {
  float beta1, beta2, epsilon;
  float log_beta1, log_beta2;
};
struct UpdateRule {
  graph::OpKind kind;  // of an optimizer, or ema: v = decay * v + (1 - decay) * w
  SgdRule sgd{};       // of sgd and lars
  AdamRule adam{};     // of adamw and lamb
};
void update(const Updates& updates, const UpdateRule& rule, cudaStream_t stream);

struct GradientCheck {
  const UpdateChunk* chunks;  // of all gradients
  int count;
  const int* first;  // [tensors + 1]: each gradient's first chunk, and the end
  int tensors;
  graph::ScaleAttr attr;
  const float* scalars;
  float* partials = nullptr;  // [count], work space
  float* check;
  float* squares;  // ?
  float *loss_scale, *good_steps, *skipped_steps;
};
void gradient_check(const GradientCheck& args, cudaStream_t stream);

struct CopyItem {
  const float* from;
  float* to;
  int count;
};
// Copies all when *flag is 0.
void copy_unless(const float* flag, const CopyItem* items, int count, cudaStream_t stream);

void accumulate(Type type, std::int64_t count, const float* scalars, float* total, const void* g,
                cudaStream_t stream);

// Write the time of the device's clock, or add the time since `begun` to `total`; in nanoseconds.
void stamp(std::uint64_t* now, cudaStream_t stream);
void add_time(const std::uint64_t* begun, std::uint64_t* total, cudaStream_t stream);

// The results of a run for the host, in device memory. Times are nanoseconds of the device's clock; a run
// begins by stamping `begin`.
struct RunRecord {
  float loss[graph::kLossMetrics];
  float check[graph::kStepChecks];
  std::uint64_t begin, end;
  std::uint64_t exposed;  // waiting for other ranks, in all runs so far
};
// Ends a run: copies loss?, check? and exposed? to the record, and stamps `end`.
void end_run(RunRecord* record, const float* loss, const float* check, const std::uint64_t* exposed,
             cudaStream_t stream);

// Keeps the stream busy for that long without using memory. Kernels launched meanwhile then run back to back,
// however short they are and however slow the host.
void hold(std::uint64_t nanoseconds, cudaStream_t stream);

// Words to be set to zero.
struct ClearItem {
  unsigned* at;
  int words;
};
// Adds a node to a graph that clears a table of items, which is in device memory.
cudaError_t add_clear(cudaGraph_t graph, cudaGraphNode_t* node, const ClearItem* items, int count);

}  // namespace redline::backend::cuda
