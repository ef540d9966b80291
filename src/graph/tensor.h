// The tensors of the graph: shapes, element types, and kinds.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

namespace redline::graph {

enum class DType : std::uint8_t { f32, bf16, f16, u8, i32 };

std::size_t size_of(DType dtype);          // bytes of one element
std::string_view name_of(DType dtype);     // "fp32", "bf16", "fp16", "u8", "i32"
DType parse_dtype(std::string_view name);  // throws UsageError, naming the choices

// Up to four dimensions in logical order: activations N,C,H,W; convolution weights O,I,H,W; matrices rows,
// columns; vectors C. The planner chooses the memory layout; it is not part of the shape.
class Shape {
 public:
  static constexpr int kMaxRank = 4;

  Shape() = default;
  Shape(std::initializer_list<std::int64_t> dims);

  int rank() const { return rank_; }
  std::int64_t operator[](int axis) const { return dims_[static_cast<std::size_t>(axis)]; }
  std::int64_t elements() const;
  std::string text() const;  // "32x64x56x56"

  // The four dimensions of an activation or a convolution's weights.
  std::int64_t n() const { return dims_[0]; }
  std::int64_t c() const { return dims_[1]; }
  std::int64_t h() const { return dims_[2]; }
  std::int64_t w() const { return dims_[3]; }

  friend bool operator==(const Shape&, const Shape&) = default;

 private:
  std::array<std::int64_t, kMaxRank> dims_{};
  int rank_ = 0;
};

// What a tensor is for decides where it lives: kinds from `parameter` to `scaler` outlive a step.
enum class TensorKind : std::uint8_t {
  input,       // written by the host before a step: images, labels, step scalars
  parameter,   // fp32 master weights
  statistic,   // running mean and variance of a batch norm
  momentum,    // optimizer state
  average,     // exponential moving average of a parameter or statistic
  scaler,      // the loss scale and what is counted to adapt it
  gradient,    // gradient of a parameter; lives in its bucket
  activation,  // everything between, forward and backward
  metric,      // read by the host after a step
};

std::string_view name_of(TensorKind kind);
bool is_persistent(TensorKind kind);  // lives in the State that executables share

struct Tensor {
  std::string name;
  Shape shape;
  DType dtype = DType::f32;
  TensorKind kind = TensorKind::activation;
  float fill = 0.0F;    // what a persistent fp32 tensor holds when it is new
  bool frozen = false;  // a parameter that is not trained, or a statistic that does not move
};

using TensorId = std::int32_t;
inline constexpr TensorId kNone = -1;  // an optional input or output that is not there

}  // namespace redline::graph
