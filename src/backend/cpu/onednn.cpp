#include "backend/cpu/onednn.h"

#include <cstring>
#include <memory>
#include <unordered_map>

#include "base/error.h"

namespace redline::backend::cpu {

using dnnl::memory;
using plan::Layout;

const dnnl::engine& dnnl_engine() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

dnnl::stream& dnnl_stream() {
  static thread_local dnnl::stream stream(dnnl_engine());
  return stream;
}

memory::data_type dnnl_type(graph::DType dtype) {
  switch (dtype) {
    case graph::DType::f32:
      return memory::data_type::f32;
    case graph::DType::bf16:
      return memory::data_type::bf16;
    default:
      throw InternalError("the cpu backend does not compute in {}", name_of(dtype));
  }
}

namespace {

memory::dims dims_of(const graph::Shape& shape) {
  memory::dims dims;
  for (int axis = 0; axis < shape.rank(); ++axis) dims.push_back(shape[axis]);
  return dims;
}

memory::format_tag tag_of(const graph::Shape& shape, Layout layout) {
  using tag = memory::format_tag;
  if (shape.rank() == 2) return tag::ab;
  if (shape.rank() == 1) return tag::a;
  switch (layout) {
    case Layout::plain:
      return tag::abcd;
    case Layout::channels_last:
      return tag::acdb;
    case Layout::channels_last4:
    case Layout::folded:
      break;
    case Layout::blocked16:
      return tag::aBcd16b;
    case Layout::weights16:
      return shape[1] < 16 ? tag::Acdb16a : tag::ABcd16b16a;
  }
  throw InternalError("oneDNN is not given {} tensors", plan::name_of(layout));
}

}  // namespace

memory::desc dnnl_desc(const graph::Shape& shape, graph::DType dtype, Layout layout) {
  return {dims_of(shape), dnnl_type(dtype), tag_of(shape, layout)};
}

memory::desc dnnl_any(const graph::Shape& shape, graph::DType dtype) {
  return {dims_of(shape), dnnl_type(dtype), memory::format_tag::any};
}

bool is_slow(const dnnl::primitive_desc_base& desc) {
  return std::strncmp(desc.impl_info_str(), "ref", 3) == 0;
}

namespace {

// A tensor on its way between our memory and the place in scratch that the primitive uses.
struct Staged {
  dnnl::memory ours, wanted;
  Pack pack;
  dnnl::reorder reorder;  // when there is no pack
  std::size_t offset;     // in scratch
};

struct PrimitiveStep {
  dnnl::primitive primitive;
  std::unordered_map<int, dnnl::memory> arguments;
  std::vector<Staged> before, after;
  const Scratch* scratch;

  void run() {
    dnnl::stream& stream = dnnl_stream();
    for (Staged& staged : before) {
      staged.wanted.set_data_handle(scratch->data() + staged.offset);
      if (staged.pack) {
        staged.pack(static_cast<const std::byte*>(staged.ours.get_data_handle()),
                    scratch->data() + staged.offset);
      } else {
        staged.reorder.execute(stream, staged.ours, staged.wanted);
      }
    }
    for (Staged& staged : after) staged.wanted.set_data_handle(scratch->data() + staged.offset);
    primitive.execute(stream, arguments);
    for (Staged& staged : after) staged.reorder.execute(stream, staged.wanted, staged.ours);
    stream.wait();
  }
};

constexpr std::size_t kPage = 4096;

}  // namespace

Step make_primitive_step(dnnl::primitive primitive, std::vector<Operand> operands, Scratch& scratch) {
  auto step = std::make_shared<PrimitiveStep>();
  step->primitive = std::move(primitive);
  step->scratch = &scratch;
  std::size_t offset = 0;
  for (const Operand& operand : operands) {
    dnnl::memory ours(operand.ours, dnnl_engine(), operand.memory);
    if (operand.ours == operand.wanted) {
      step->arguments.emplace(operand.argument, ours);
      continue;
    }
    dnnl::memory wanted(operand.wanted, dnnl_engine(), nullptr);
    step->arguments.emplace(operand.argument, wanted);
    if (operand.output) {
      step->after.push_back({ours, wanted, {}, dnnl::reorder(wanted, ours), offset});
    } else {
      step->before.push_back(
          {ours, wanted, operand.pack, operand.pack ? dnnl::reorder() : dnnl::reorder(ours, wanted), offset});
    }
    offset += (operand.wanted.get_size() + kPage - 1) / kPage * kPage;
  }
  scratch.need(offset);
  return [step] { step->run(); };
}

}  // namespace redline::backend::cpu
