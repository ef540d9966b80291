// The CPU backend's own inner loops, as a table of functions: one table per instruction set and storage type,
// chosen once (dispatch.h). They run on the caller's thread; splitting the work is up to the op (norm.cpp,
// pool.cpp, …).
//
// Activations lie in blocks of 16 channels, so a kernel works on one channel block: 16 lanes, one per
// channel. Per-channel arrays hold 16 values. A pointer called `…?` may be null.
//
// Included by files that are compiled for a specific CPU, so nothing here may emit code that other files
// could link to.
#pragma once

#include <cstdint>

namespace redline::backend::cpu {

// One channel block of several images: `images` runs of `pixels` x 16 elements, starts `stride` elements
// apart.
struct Run {
  std::int64_t images, pixels, stride;
};

// How a gradient is gated by the ReLU above: by bits (16 a pixel, same run), by scale * y + bias > 0, or not.
struct Gate {
  const float* scale = nullptr;  // with bias
  const float* bias = nullptr;
  const std::uint16_t* mask = nullptr;
  std::int64_t mask_stride = 0;  // between images, in pixels
};

// z = act(scale * y + bias + shortcut?), where the shortcut may have an affine of its own.
struct AffineAct {
  const void* y;
  const float *scale, *bias;
  const void* shortcut;                         // ?
  const float *shortcut_scale, *shortcut_bias;  // ?
  bool relu;
  void* z;
  std::uint16_t* mask;  // ?
  std::int64_t mask_stride;
};

struct GradStats {
  const void* g;
  const void* g2;  // ?
  const void* y;
  Gate gate;
  const float* mean;
  void* masked;      // ?
  double* sum_g;     // += sum of the gated gradient
  double* sum_g_dy;  // += sum of gated gradient x (y - mean)
};

// dy = a * gated g + b * (y - mean) + c
struct GradApply {
  const void* g;
  const void* y;
  Gate gate;
  const float *a, *b, *c, *mean;
  void* dy;
};

struct Window {
  std::int64_t h, w, out_h, out_w;
  int kernel, stride, pad;
};

struct ActivationKernels {
  // Adds the sums of (y - shift) and (y - shift)^2.
  void (*stats)(const Run& run, const void* y, const float* shift, double* sum, double* sum2);
  void (*affine_act)(const Run& run, const AffineAct& args);
  void (*grad_stats)(const Run& run, const GradStats& args);
  void (*grad_apply)(const Run& run, const GradApply& args);
  // One image, one channel block. With scale and bias (?) the pool sees relu(scale * x + bias). index? is u8;
  // picked? the x that it names, only with both.
  void (*max_pool)(const Window& window, const void* x, const float* scale, const float* bias, void* y,
                   std::uint8_t* index, void* picked);
  void (*max_pool_grad)(const Window& window, const void* dy, const std::uint8_t* index, void* dx);
  void (*avg_pool)(std::int64_t pixels, const void* x, void* y);
  void (*avg_pool_grad)(std::int64_t pixels, const void* dy, void* dx);
  // Windows side by side, cut off at the edge: `stride` is `kernel`, and there is no padding.
  void (*local_avg_pool)(const Window& window, const void* x, void* y);
  void (*local_avg_pool_grad)(const Window& window, const void* dy, void* dx);
  // Flat, over `count` elements, a multiple of 16.
  void (*relu)(std::int64_t count, const void* x, void* y);
  void (*add)(std::int64_t count, const void* a, const void* b, void* y);
  void (*relu_grad)(std::int64_t count, const void* dy, const void* y, void* dx);
  // Any count.
  void (*from_float)(std::int64_t count, const float* x, void* y);
  // Interleaved u8 pixels to planes: y[c][i] = x[i][c] * scale[c] + bias[c]; `plane` elements apart.
  void (*normalize)(std::int64_t pixels, std::int64_t plane, const std::uint8_t* x, const float* scale,
                    const float* bias, void* y);
};

struct SgdStep {
  float learning_rate, gradient_scale, momentum, weight_decay;
  bool nesterov;
};

// How Adam's moments move, and its direction m * scale1 / (sqrt(v) * scale2 + epsilon).
struct AdamStep {
  float gradient_scale, beta1, beta2, epsilon;
  float scale1, scale2;  // what corrects moments that began at zero
};

// Flat fp32 loops over parameters; any count.
struct UpdateKernels {
  void (*sgd)(std::int64_t count, const SgdStep& step, float* w, const float* g, float* v);
  // v = momentum * v + rate * (gradient_scale * g + weight_decay * w); w -= v
  void (*lars)(std::int64_t count, float rate, const SgdStep& step, float* w, const float* g, float* v);
  // w = keep * w - rate * direction
  void (*adamw)(std::int64_t count, const AdamStep& step, float keep, float rate, float* w, const float* g,
                float* m, float* v);
  // Moves the moments, and gives the sum of squares of (direction + decay * w), by which lamb then moves w.
  double (*lamb_moments)(std::int64_t count, const AdamStep& step, float decay, const float* w,
                         const float* g, float* m, float* v);
  void (*lamb)(std::int64_t count, const AdamStep& step, float decay, float rate, float* w, const float* m,
               const float* v);
  void (*ema)(std::int64_t count, float decay, float* average, const float* value);
  void (*accumulate)(std::int64_t count, float keep, float* total, const float* g);
  double (*sum_of_squares)(std::int64_t count, const float* x);
};

// One tile of weights, 16 input channels by 16 output channels fp32 (`[i][o]`), into the forms that
// convolutions read. bf16 forms hold pairs of rows: [row / 2][column][2].
struct PackKernels {
  void (*f32_transposed)(const float* tile, void* out);   // [o][i]
  void (*bf16)(const float* tile, void* out);             // rows are inputs
  void (*bf16_transposed)(const float* tile, void* out);  // rows are outputs
};

// What each build of the kernels offers (dispatch.cpp chooses).
struct KernelTables {
  const char* isa;
  ActivationKernels f32, bf16;
  UpdateKernels update;
  PackKernels pack;
};
namespace v2 {
extern const KernelTables kTables;
}
namespace v3 {
extern const KernelTables kTables;
}
namespace v4 {
extern const KernelTables kTables;
}

}  // namespace redline::backend::cpu
