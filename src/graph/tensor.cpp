#include "graph/tensor.h"

#include "base/error.h"

namespace redline::graph {

std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::bf16:
    case DType::f16:
      return 2;
    case DType::u8:
      return 1;
  }
  throw InternalError("unknown dtype {}", static_cast<int>(dtype));
}

std::string_view name_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "fp32";
    case DType::bf16:
      return "bf16";
    case DType::f16:
      return "fp16";
    case DType::u8:
      return "u8";
    case DType::i32:
      return "i32";
  }
  throw InternalError("unknown dtype {}", static_cast<int>(dtype));
}

DType parse_dtype(std::string_view name) {
  for (DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    if (name == name_of(dtype)) return dtype;
  }
  throw UsageError("unknown dtype '{}': choose fp32, bf16 or fp16", name);
}

Shape::Shape(std::initializer_list<std::int64_t> dims) : rank_(static_cast<int>(dims.size())) {
  check(dims.size() <= kMaxRank, "a shape has at most {} dimensions, not {}", kMaxRank, dims.size());
  std::size_t axis = 0;
  for (std::int64_t dim : dims) {
    check(dim > 0, "dimension {} of a shape is {}", axis, dim);
    dims_[axis++] = dim;
  }
}

std::int64_t Shape::elements() const {
  std::int64_t count = 1;
  for (int axis = 0; axis < rank_; ++axis) count *= (*this)[axis];
  return count;
}

std::string Shape::text() const {
  std::string text;
  for (int axis = 0; axis < rank_; ++axis) text += (axis ? "x" : "") + std::to_string((*this)[axis]);
  return text;
}

std::string_view name_of(TensorKind kind) {
  switch (kind) {
    case TensorKind::input:
      return "input";
    case TensorKind::parameter:
      return "parameter";
    case TensorKind::statistic:
      return "statistic";
    case TensorKind::momentum:
      return "momentum";
    case TensorKind::average:
      return "average";
    case TensorKind::scaler:
      return "scaler";
    case TensorKind::gradient:
      return "gradient";
    case TensorKind::activation:
      return "activation";
    case TensorKind::metric:
      return "metric";
  }
  throw InternalError("unknown tensor kind {}", static_cast<int>(kind));
}

bool is_persistent(TensorKind kind) { return kind >= TensorKind::parameter && kind <= TensorKind::scaler; }

}  // namespace redline::graph
