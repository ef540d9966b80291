// Loops over one channel block of an activation; see kernels.h for what each computes. Included by
// kernels.cpp, which is compiled once per instruction set.
#pragma once

#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/vec.h"

namespace redline::backend::cpu {
namespace {

// fp32 partial sums cover this many pixels before they are added in double: rounding is as good as that of a
// pairwise sum, at the cost of one conversion per 256 pixels.
constexpr int64_t kChunk = 256;

inline void add_to(double* total, V v) {
  for (int i = 0; i < kLanes; ++i) total[i] += static_cast<double>(v[i]);
}

// Calls body(image, first pixel, last pixel) over chunks.
template <typename Body>
inline void for_chunks(const Run& run, Body body) {
  for (int64_t image = 0; image < run.images; ++image) {
    for (int64_t begin = 0; begin < run.pixels; begin += kChunk) {
      body(image, begin, begin + kChunk < run.pixels ? begin + kChunk : run.pixels);
    }
  }
}

template <typename T>
void stats(const Run& run, const void* y_, const float* shift_, double* sum, double* sum2) {
  const V shift = load(shift_);
  for_chunks(run, [&](int64_t image, int64_t begin, int64_t end) {
    const T* y = static_cast<const T*>(y_) + image * run.stride;
    V s0{}, s1{}, q0{}, q1{};
    int64_t p = begin;
    for (; p + 1 < end; p += 2) {
      const V a = load(y + p * kLanes) - shift, b = load(y + (p + 1) * kLanes) - shift;
      s0 += a;
      s1 += b;
      q0 += a * a;
      q1 += b * b;
    }
    if (p < end) {
      const V a = load(y + p * kLanes) - shift;
      s0 += a;
      q0 += a * a;
    }
    add_to(sum, s0 + s1);
    add_to(sum2, q0 + q1);
  });
}

enum class Shortcut { none, plain, affine };

template <typename T, Shortcut kShortcut, bool kRelu, bool kMask>
void affine_act_loop(const Run& run, const AffineAct& args) {
  const V scale = load(args.scale), bias = load(args.bias);
  V shortcut_scale{}, shortcut_bias{};
  if constexpr (kShortcut == Shortcut::affine) {
    shortcut_scale = load(args.shortcut_scale);
    shortcut_bias = load(args.shortcut_bias);
  }
  for (int64_t image = 0; image < run.images; ++image) {
    const T* y = static_cast<const T*>(args.y) + image * run.stride;
    const T* shortcut =
        kShortcut == Shortcut::none ? nullptr : static_cast<const T*>(args.shortcut) + image * run.stride;
    T* z = static_cast<T*>(args.z) + image * run.stride;
    uint16_t* mask = kMask ? args.mask + image * args.mask_stride : nullptr;
    for (int64_t p = 0; p < run.pixels; ++p) {
      V v = load(y + p * kLanes) * scale + bias;
      if constexpr (kShortcut == Shortcut::plain) v += load(shortcut + p * kLanes);
      if constexpr (kShortcut == Shortcut::affine)
        v += load(shortcut + p * kLanes) * shortcut_scale + shortcut_bias;
      if constexpr (kMask) mask[p] = bits_of(v > 0.0F);
      if constexpr (kRelu) v = v < 0.0F ? V{} : v;  // NaN passes
      store(z + p * kLanes, v);
    }
  }
}

template <typename T, Shortcut kShortcut>
void affine_act_for(const Run& run, const AffineAct& args) {
  if (args.mask != nullptr) return affine_act_loop<T, kShortcut, true, true>(run, args);
  if (args.relu) return affine_act_loop<T, kShortcut, true, false>(run, args);
  affine_act_loop<T, kShortcut, false, false>(run, args);
}

template <typename T>
void affine_act(const Run& run, const AffineAct& args) {
  if (args.shortcut == nullptr) return affine_act_for<T, Shortcut::none>(run, args);
  if (args.shortcut_scale == nullptr) return affine_act_for<T, Shortcut::plain>(run, args);
  affine_act_for<T, Shortcut::affine>(run, args);
}

enum class GateKind { none, affine, mask };

// The gate of pixel p, whose raw value is y.
template <GateKind kGate>
struct GateLanes {
  V scale{}, bias{};
  const uint16_t* mask = nullptr;

  GateLanes(const Gate& gate, int64_t image) {
    if constexpr (kGate == GateKind::affine) {
      scale = load(gate.scale);
      bias = load(gate.bias);
    }
    if constexpr (kGate == GateKind::mask) mask = gate.mask + image * gate.mask_stride;
  }
  V apply(V g, V y, int64_t p) const {
    if constexpr (kGate == GateKind::affine) return keep(g, y * scale + bias > 0.0F);
    if constexpr (kGate == GateKind::mask) return keep(g, mask[p]);
    return g;
  }
};

template <typename T, GateKind kGate, bool kTwo, bool kMasked>
void grad_stats_loop(const Run& run, const GradStats& args) {
  const V mean = load(args.mean);
  for_chunks(run, [&](int64_t image, int64_t begin, int64_t end) {
    const GateLanes<kGate> gate(args.gate, image);
    const T* g = static_cast<const T*>(args.g) + image * run.stride;
    const T* g2 = kTwo ? static_cast<const T*>(args.g2) + image * run.stride : nullptr;
    const T* y = static_cast<const T*>(args.y) + image * run.stride;
    T* masked = kMasked ? static_cast<T*>(args.masked) + image * run.stride : nullptr;
    V sum[2] = {}, dot[2] = {};
    const auto pixel = [&](int64_t p, V& s, V& d) {
      V gradient = load(g + p * kLanes);
      if constexpr (kTwo) gradient += load(g2 + p * kLanes);
      const V value = load(y + p * kLanes);
      gradient = gate.apply(gradient, value, p);
      if constexpr (kMasked) store(masked + p * kLanes, gradient);
      s += gradient;
      d += gradient * (value - mean);
    };
    int64_t p = begin;
    for (; p + 1 < end; p += 2) {
      pixel(p, sum[0], dot[0]);
      pixel(p + 1, sum[1], dot[1]);
    }
    if (p < end) pixel(p, sum[0], dot[0]);
    add_to(args.sum_g, sum[0] + sum[1]);
    add_to(args.sum_g_dy, dot[0] + dot[1]);
  });
}

template <typename T, GateKind kGate>
void grad_stats_for(const Run& run, const GradStats& args) {
  if (args.g2 != nullptr) {
    return args.masked != nullptr ? grad_stats_loop<T, kGate, true, true>(run, args)
                                  : grad_stats_loop<T, kGate, true, false>(run, args);
  }
  return args.masked != nullptr ? grad_stats_loop<T, kGate, false, true>(run, args)
                                : grad_stats_loop<T, kGate, false, false>(run, args);
}

template <typename T>
void grad_stats(const Run& run, const GradStats& args) {
  if (args.gate.mask != nullptr) return grad_stats_for<T, GateKind::mask>(run, args);
  if (args.gate.scale != nullptr) return grad_stats_for<T, GateKind::affine>(run, args);
  grad_stats_for<T, GateKind::none>(run, args);
}

template <typename T, GateKind kGate>
void grad_apply_loop(const Run& run, const GradApply& args) {
  const V a = load(args.a), b = load(args.b), c = load(args.c), mean = load(args.mean);
  for (int64_t image = 0; image < run.images; ++image) {
    const GateLanes<kGate> gate(args.gate, image);
    const T* g = static_cast<const T*>(args.g) + image * run.stride;
    const T* y = static_cast<const T*>(args.y) + image * run.stride;
    T* dy = static_cast<T*>(args.dy) + image * run.stride;
    for (int64_t p = 0; p < run.pixels; ++p) {
      const V value = load(y + p * kLanes);
      const V gradient = gate.apply(load(g + p * kLanes), value, p);
      store(dy + p * kLanes, a * gradient + b * (value - mean) + c);
    }
  }
}

template <typename T>
void grad_apply(const Run& run, const GradApply& args) {
  if (args.gate.mask != nullptr) return grad_apply_loop<T, GateKind::mask>(run, args);
  if (args.gate.scale != nullptr) return grad_apply_loop<T, GateKind::affine>(run, args);
  grad_apply_loop<T, GateKind::none>(run, args);
}

template <typename T, bool kAffine, bool kIndex, bool kPicked>
void max_pool_loop(const Window& window, const T* x, const float* scale_, const float* bias_, T* y,
                   uint8_t* index, T* picked) {
  V scale{}, bias{};
  if constexpr (kAffine) {
    scale = load(scale_);
    bias = load(bias_);
  }
  for (int64_t oh = 0; oh < window.out_h; ++oh) {
    for (int64_t ow = 0; ow < window.out_w; ++ow) {
      V best = splat(-__builtin_inff()), raw{};
      VI where{};
      for (int kh = 0; kh < window.kernel; ++kh) {
        const int64_t h = oh * window.stride - window.pad + kh;
        if (h < 0 || h >= window.h) continue;
        for (int kw = 0; kw < window.kernel; ++kw) {
          const int64_t w = ow * window.stride - window.pad + kw;
          if (w < 0 || w >= window.w) continue;
          const V in = load(x + (h * window.w + w) * kLanes);
          V v = in;
          if constexpr (kAffine) {
            v = v * scale + bias;
            v = v < 0.0F ? V{} : v;
          }
          const VI better = !(v <= best);  // the first maximum wins, and NaN shows
          best = better ? v : best;
          if constexpr (kPicked) raw = better ? in : raw;
          if constexpr (kIndex) where = better ? (kh * window.kernel + kw) - VI{} : where;
        }
      }
      const int64_t out = (oh * window.out_w + ow) * kLanes;
      store(y + out, best);
      if constexpr (kPicked) store(picked + out, raw);
      if constexpr (kIndex) {
        const VB bytes = __builtin_convertvector(where, VB);
        memcpy(index + out, &bytes, sizeof bytes);
      }
    }
  }
}

template <typename T>
void max_pool(const Window& window, const void* x_, const float* scale, const float* bias, void* y_,
              uint8_t* index, void* picked_) {
  const T* x = static_cast<const T*>(x_);
  T *y = static_cast<T*>(y_), *picked = static_cast<T*>(picked_);
  if (picked != nullptr) return max_pool_loop<T, true, true, true>(window, x, scale, bias, y, index, picked);
  if (scale != nullptr) {
    return index != nullptr ? max_pool_loop<T, true, true, false>(window, x, scale, bias, y, index, picked)
                            : max_pool_loop<T, true, false, false>(window, x, scale, bias, y, index, picked);
  }
  return index != nullptr ? max_pool_loop<T, false, true, false>(window, x, scale, bias, y, index, picked)
                          : max_pool_loop<T, false, false, false>(window, x, scale, bias, y, index, picked);
}

// Gathers: every input pixel looks at the windows that cover it and takes the gradients it won.
template <typename T>
void max_pool_grad(const Window& window, const void* dy_, const uint8_t* index, void* dx_) {
  const T* dy = static_cast<const T*>(dy_);
  T* dx = static_cast<T*>(dx_);
  const auto first = [&](int64_t at) {  // the first window that covers position `at`
    const int64_t from = at + window.pad - window.kernel + 1;
    return from <= 0 ? 0 : (from + window.stride - 1) / window.stride;
  };
  const auto last = [&](int64_t at, int64_t count) {
    const int64_t to = (at + window.pad) / window.stride;
    return to < count ? to : count - 1;
  };
  for (int64_t h = 0; h < window.h; ++h) {
    for (int64_t w = 0; w < window.w; ++w) {
      V sum{};
      for (int64_t oh = first(h); oh <= last(h, window.out_h); ++oh) {
        for (int64_t ow = first(w); ow <= last(w, window.out_w); ++ow) {
          const int64_t kh = h - (oh * window.stride - window.pad),
                        kw = w - (ow * window.stride - window.pad);
          const int64_t out = (oh * window.out_w + ow) * kLanes;
          VB bytes;
          memcpy(&bytes, index + out, sizeof bytes);
          const VI where = __builtin_convertvector(bytes, VI);
          sum += keep(load(dy + out), where == static_cast<int32_t>(kh * window.kernel + kw));
        }
      }
      store(dx + (h * window.w + w) * kLanes, sum);
    }
  }
}

template <typename T>
void avg_pool(int64_t pixels, const void* x_, void* y) {
  const T* x = static_cast<const T*>(x_);
  V sum{};
  for (int64_t p = 0; p < pixels; ++p) sum += load(x + p * kLanes);
  store(static_cast<T*>(y), sum * (1.0F / static_cast<float>(pixels)));
}

template <typename T>
void avg_pool_grad(int64_t pixels, const void* dy, void* dx_) {
  T* dx = static_cast<T*>(dx_);
  const V share = load(static_cast<const T*>(dy)) * (1.0F / static_cast<float>(pixels));
  for (int64_t p = 0; p < pixels; ++p) store(dx + p * kLanes, share);
}

// Calls visit(out, h, end_h, w, end_w) for every window: its place, and the pixels that it has.
template <typename Visit>
void for_each_local_window(const Window& window, const Visit& visit) {
  const auto end = [&](int64_t begin, int64_t size) {
    return begin + window.kernel < size ? begin + window.kernel : size;
  };
  for (int64_t oh = 0; oh < window.out_h; ++oh) {
    for (int64_t ow = 0; ow < window.out_w; ++ow) {
      const int64_t h = oh * window.kernel, w = ow * window.kernel;
      visit((oh * window.out_w + ow) * kLanes, h, end(h, window.h), w, end(w, window.w));
    }
  }
}

template <typename T>
void local_avg_pool(const Window& window, const void* x_, void* y_) {
  const T* x = static_cast<const T*>(x_);
  T* y = static_cast<T*>(y_);
  for_each_local_window(window, [&](int64_t out, int64_t h0, int64_t h1, int64_t w0, int64_t w1) {
    V sum{};
    for (int64_t h = h0; h < h1; ++h)
      for (int64_t w = w0; w < w1; ++w) sum += load(x + (h * window.w + w) * kLanes);
    store(y + out, sum * (1.0F / static_cast<float>((h1 - h0) * (w1 - w0))));
  });
}

template <typename T>
void local_avg_pool_grad(const Window& window, const void* dy_, void* dx_) {
  const T* dy = static_cast<const T*>(dy_);
  T* dx = static_cast<T*>(dx_);
  for_each_local_window(window, [&](int64_t out, int64_t h0, int64_t h1, int64_t w0, int64_t w1) {
    const V share = load(dy + out) * (1.0F / static_cast<float>((h1 - h0) * (w1 - w0)));
    for (int64_t h = h0; h < h1; ++h)
      for (int64_t w = w0; w < w1; ++w) store(dx + (h * window.w + w) * kLanes, share);
  });
}

template <typename T>
void relu(int64_t count, const void* x_, void* y_) {
  const T* x = static_cast<const T*>(x_);
  T* y = static_cast<T*>(y_);
  for (int64_t i = 0; i < count; i += kLanes) {
    const V v = load(x + i);
    store(y + i, v < 0.0F ? V{} : v);
  }
}

template <typename T>
void add(int64_t count, const void* a_, const void* b_, void* y_) {
  const T *a = static_cast<const T*>(a_), *b = static_cast<const T*>(b_);
  T* y = static_cast<T*>(y_);
  for (int64_t i = 0; i < count; i += kLanes) store(y + i, load(a + i) + load(b + i));
}

template <typename T>
void relu_grad(int64_t count, const void* dy_, const void* y_, void* dx_) {
  const T *dy = static_cast<const T*>(dy_), *y = static_cast<const T*>(y_);
  T* dx = static_cast<T*>(dx_);
  for (int64_t i = 0; i < count; i += kLanes) store(dx + i, keep(load(dy + i), load(y + i) > 0.0F));
}

template <typename T>
void from_float(int64_t count, const float* x, void* y_) {
  T* y = static_cast<T*>(y_);
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) store(y + i, load(x + i));
  if (i == count) return;
  float in[kLanes] = {};
  T out[kLanes];
  memcpy(in, x + i, static_cast<size_t>(count - i) * sizeof(float));
  store(out, load(in));
  memcpy(y + i, out, static_cast<size_t>(count - i) * sizeof(T));
}

template <typename T>
void normalize(int64_t pixels, int64_t plane, const uint8_t* x, const float* scale, const float* bias,
               void* y_) {
  T* y = static_cast<T*>(y_);
  for (int64_t begin = 0; begin < pixels; begin += kLanes) {
    const int64_t n = pixels - begin < kLanes ? pixels - begin : kLanes;
    for (int c = 0; c < 3; ++c) {
      float in[kLanes] = {};
      for (int64_t i = 0; i < n; ++i) in[i] = static_cast<float>(x[(begin + i) * 3 + c]);
      const V v = load(in) * scale[c] + bias[c];
      T* out = y + c * plane + begin;
      if (n == kLanes) {
        store(out, v);
      } else {
        T part[kLanes];
        store(part, v);
        memcpy(out, part, static_cast<size_t>(n) * sizeof(T));
      }
    }
  }
}

template <typename T>
constexpr ActivationKernels activation_table() {
  return {stats<T>,         affine_act<T>, grad_stats<T>,    grad_apply<T>,     max_pool<T>,
          max_pool_grad<T>, avg_pool<T>,   avg_pool_grad<T>, local_avg_pool<T>, local_avg_pool_grad<T>,
          relu<T>,          add<T>,        relu_grad<T>,     from_float<T>,     normalize<T>};
}

}  // namespace
}  // namespace redline::backend::cpu
