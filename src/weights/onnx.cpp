// The forward graph of a ResNet, op by op, as an ONNX model.
#include <cmath>
#include <span>

#include "base/atomic_file.h"
#include "base/build_info.h"
#include "base/error.h"
#include "graph/models/resnet.h"
#include "graph/operands.h"
#include "onnx.pb.h"
#include "weights/model_weights.h"

namespace redline::weights {
namespace {

namespace proto = redline::onnx;
using namespace graph::operands;  // Conv::x, BatchNorm::gamma, ...
using graph::Op;
using graph::OpKind;
using graph::TensorId;

constexpr std::int64_t kIrVersion = 8, kOpset = 17;

class OnnxBuilder {
 public:
  OnnxBuilder(const ModelWeights& weights, const OnnxOptions& options, const graph::Model& model,
              proto::Graph& out)
      : weights_(weights), options_(options), model_(model), out_(out) {}

  void build() {
    out_.set_name(weights_.model);
    describe(*out_.add_input(), "images", {3, options_.image_size, options_.image_size});
    describe(*out_.add_output(), "logits", {weights_.classes});
    for (std::size_t i = 0; i < ops().size(); ++i) add(i);
  }

 private:
  const std::vector<Op>& ops() const { return model_.graph.ops(); }

  // The name of a graph edge in the file. The image's normalisation is not part of it.
  std::string name(TensorId id) const {
    if (id == model_.logits) return "logits";
    const Op& first = ops().front();
    if (id == model_.images ||
        (first.kind == OpKind::normalize_image && id == first.outputs[NormalizeImage::x]))
      return "images";
    return model_.graph.tensor(id).name;
  }

  void describe(proto::ValueInfo& value, const char* called, const Dimensions& after_batch) {
    value.set_name(called);
    proto::Type::Tensor& type = *value.mutable_type()->mutable_tensor_type();
    type.set_elem_type(proto::Tensor::FLOAT);
    type.mutable_shape()->add_dim()->set_dim_param("batch");
    for (const std::int64_t dim : after_batch) type.mutable_shape()->add_dim()->set_dim_value(dim);
  }

  // A node has the name of its output, which is unique.
  proto::Node& node(const char* type, const std::vector<std::string>& inputs, const std::string& output) {
    proto::Node& node = *out_.add_node();
    node.set_name(output);
    node.set_op_type(type);
    for (const std::string& input : inputs) node.add_input(input);
    node.add_output(output);
    return node;
  }

  static void attribute(proto::Node& node, const char* called, const std::vector<std::int64_t>& values) {
    proto::Attribute& attribute = *node.add_attribute();
    attribute.set_name(called);
    attribute.set_type(proto::Attribute::INTS);
    for (const std::int64_t value : values) attribute.add_ints(value);
  }

  static void attribute(proto::Node& node, const char* called, std::int64_t value) {
    proto::Attribute& attribute = *node.add_attribute();
    attribute.set_name(called);
    attribute.set_type(proto::Attribute::INT);
    attribute.set_i(value);
  }

  std::string constant(const std::string& called, const Dimensions& shape, std::span<const float> values) {
    proto::Tensor& tensor = *out_.add_initializer();
    tensor.set_name(called);
    tensor.set_data_type(proto::Tensor::FLOAT);
    for (const std::int64_t dim : shape) tensor.add_dims(dim);
    tensor.set_raw_data(values.data(), values.size_bytes());
    return called;
  }

  std::string constant(TensorId id) {
    const graph::Tensor& tensor = model_.graph.tensor(id);
    Dimensions shape;
    for (int axis = 0; axis < tensor.shape.rank(); ++axis) shape.push_back(tensor.shape[axis]);
    return constant(tensor.name, shape, values(id));
  }

  const std::vector<float>& values(TensorId id) const {
    return weights_.values.at(model_.graph.tensor(id).name);
  }

  void window(proto::Node& node, std::int64_t kernel, std::int64_t stride, std::int64_t pad) {
    attribute(node, "kernel_shape", std::vector<std::int64_t>{kernel, kernel});
    attribute(node, "strides", std::vector<std::int64_t>{stride, stride});
    attribute(node, "pads", std::vector<std::int64_t>{pad, pad, pad, pad});
  }

  void window(proto::Node& node, const Op& conv) {
    const graph::ConvAttr& attr = conv.attr<graph::ConvAttr>();
    window(node, model_.graph.tensor(conv.inputs[Conv::w]).shape.h(), attr.stride, attr.pad);
    if (attr.groups > 1) attribute(node, "group", attr.groups);
  }

  // A norm after its convolution: w * s, and b - mean * s, with s = gamma / sqrt(var + epsilon).
  void folded(const Op& conv, const Op& norm) {
    const auto &gamma = values(norm.inputs[BatchNorm::gamma]), &beta = values(norm.inputs[BatchNorm::beta]);
    const auto &mean = values(norm.inputs[BatchNorm::mean]), &var = values(norm.inputs[BatchNorm::var]);
    std::vector<float> weight = values(conv.inputs[Conv::w]), bias(gamma.size());
    const std::size_t filter = weight.size() / gamma.size();
    for (std::size_t o = 0; o < gamma.size(); ++o) {
      const double scale =
          gamma[o] / std::sqrt(static_cast<double>(var[o]) + norm.attr<graph::NormAttr>().epsilon);
      for (std::size_t k = 0; k < filter; ++k)
        weight[o * filter + k] = static_cast<float>(weight[o * filter + k] * scale);
      bias[o] = static_cast<float>(beta[o] - mean[o] * scale);
    }
    const graph::Shape& shape = model_.graph.tensor(conv.inputs[Conv::w]).shape;
    const std::string w = constant(conv.name + ".weight", {shape[0], shape[1], shape[2], shape[3]}, weight);
    const std::string b = constant(conv.name + ".bias", {shape[0]}, bias);
    proto::Node& made = node("Conv", {name(conv.inputs[Conv::x]), w, b}, name(norm.outputs[BatchNorm::y]));
    window(made, conv);
  }

  void add(std::size_t at) {
    const Op& op = ops()[at];
    const auto in = [&](int i) { return name(graph::operands::in(op, i)); };
    switch (op.kind) {
      case OpKind::normalize_image:
      case OpKind::softmax_cross_entropy:
        return;
      case OpKind::conv: {
        const bool norm_follows = at + 1 < ops().size() && ops()[at + 1].kind == OpKind::batch_norm &&
                                  ops()[at + 1].inputs[BatchNorm::x] == op.outputs[Conv::y];
        if (options_.fold_norms && norm_follows) return folded(op, ops()[at + 1]);
        proto::Node& made =
            node("Conv", {in(Conv::x), constant(op.inputs[Conv::w])}, name(op.outputs[Conv::y]));
        return window(made, op);
      }
      case OpKind::batch_norm: {
        if (options_.fold_norms) return;
        proto::Node& made = node(
            "BatchNormalization",
            {in(BatchNorm::x), constant(op.inputs[BatchNorm::gamma]), constant(op.inputs[BatchNorm::beta]),
             constant(op.inputs[BatchNorm::mean]), constant(op.inputs[BatchNorm::var])},
            name(op.outputs[BatchNorm::y]));
        proto::Attribute& epsilon = *made.add_attribute();
        epsilon.set_name("epsilon");
        epsilon.set_type(proto::Attribute::FLOAT);
        epsilon.set_f(op.attr<graph::NormAttr>().epsilon);
        return;
      }
      case OpKind::relu:
        node("Relu", {in(Relu::x)}, name(op.outputs[Relu::y]));
        return;
      case OpKind::add:
        node("Add", {in(Add::a), in(Add::b)}, name(op.outputs[Add::y]));
        return;
      case OpKind::max_pool: {
        const graph::PoolAttr& attr = op.attr<graph::PoolAttr>();
        return window(node("MaxPool", {in(MaxPool::x)}, name(op.outputs[MaxPool::y])), attr.kernel,
                      attr.stride, attr.pad);
      }
      case OpKind::avg_pool:
        node("GlobalAveragePool", {in(AvgPool::x)}, name(op.outputs[AvgPool::y]) + ".pooled");
        attribute(node("Flatten", {name(op.outputs[AvgPool::y]) + ".pooled"}, name(op.outputs[AvgPool::y])),
                  "axis", 1);
        return;
      case OpKind::local_avg_pool: {
        const std::int64_t kernel = op.attr<graph::LocalPoolAttr>().kernel;
        proto::Node& made = node("AveragePool", {in(LocalAvgPool::x)}, name(op.outputs[LocalAvgPool::y]));
        window(made, kernel, kernel, 0);
        attribute(made, "ceil_mode", 1);  // the last window is cut off at the edge
        return;
      }
      case OpKind::linear:
        attribute(
            node("Gemm", {in(Linear::x), constant(op.inputs[Linear::w]), constant(op.inputs[Linear::b])},
                 name(op.outputs[Linear::y])),
            "transB", 1);
        return;
      default:
        throw InternalError("a forward graph with the op {}", graph::name_of(op.kind));
    }
  }

  const ModelWeights& weights_;
  const OnnxOptions& options_;
  const graph::Model& model_;
  proto::Graph& out_;
};

}  // namespace

void write_onnx(const std::filesystem::path& path, const ModelWeights& weights, const OnnxOptions& options) {
  graph::ModelOptions model;
  model.model = weights.model;
  model.classes = weights.classes;
  model.image_size = options.image_size;
  model.batch = 1;
  model.training = false;
  model.image_bytes = false;
  const graph::Model built = graph::build_resnet(model);
  proto::Model out;
  out.set_ir_version(kIrVersion);
  out.add_opset_import()->set_domain("");
  out.mutable_opset_import(0)->set_version(kOpset);
  out.set_producer_name("redline");
  out.set_producer_version(build_info().version);
  Metadata metadata = options.metadata;
  for (const auto& [key, value] : program_facts()) metadata["redline." + key] = value;
  for (const auto& [key, value] : metadata) {
    proto::Property& property = *out.add_metadata_props();
    property.set_key(key);
    property.set_value(value);
  }
  OnnxBuilder(weights, options, built, *out.mutable_graph()).build();
  write_file_atomically(path, out.SerializeAsString());
}

}  // namespace redline::weights
