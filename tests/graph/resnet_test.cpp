#include "graph/models/resnet.h"

#include <algorithm>
#include <cmath>
#include <set>

#include <gtest/gtest.h>

#include "base/error.h"

namespace redline::graph {
namespace {

Model build(const std::string& name, std::int64_t size = 224, std::int64_t batch = 1) {
  ModelOptions options;
  options.model = name;
  options.image_size = size;
  options.batch = batch;
  return build_resnet(options);
}

std::int64_t parameters(const Graph& graph) {
  std::int64_t count = 0;
  for (TensorId id : graph.of_kind(TensorKind::parameter)) count += graph.tensor(id).shape.elements();
  return count;
}

double forward_flops(const Graph& graph) {
  double sum = 0.0;
  for (const Op& op : graph.ops()) sum += flops(graph, op);
  return sum;
}

TEST(ResNet, HasTorchvisionsParameterCounts) {
  EXPECT_EQ(parameters(build("resnet18").graph), 11'689'512);
  EXPECT_EQ(parameters(build("resnet34").graph), 21'797'672);
  EXPECT_EQ(parameters(build("resnet50").graph), 25'557'032);
  EXPECT_EQ(parameters(build("resnet101").graph), 44'549'160);
  EXPECT_EQ(parameters(build("resnet152").graph), 60'192'808);
  EXPECT_EQ(parameters(build("wide_resnet50_2").graph), 68'883'240);
  EXPECT_EQ(parameters(build("wide_resnet101_2").graph), 126'886'696);
  EXPECT_EQ(parameters(build("resnext50_32x4d").graph), 25'028'904);
  EXPECT_EQ(parameters(build("resnext101_32x8d").graph), 88'791'336);
  EXPECT_EQ(parameters(build("resnext101_64x4d").graph), 83'455'272);
}

// timm lists 25.58 million parameters and 4.4 billion multiply-adds.
TEST(ResNet, HasTimmsSizeOfResNet50D) {
  EXPECT_EQ(parameters(build("resnet50d").graph), 25'576'264);
  EXPECT_NEAR(forward_flops(build("resnet50d").graph), 2 * 4.35e9, 2 * 0.05e9);
}

// Torchvision lists the same billions of multiply-adds.
TEST(ResNet, HasTorchvisionsFlops) {
  EXPECT_NEAR(forward_flops(build("resnet18").graph), 2 * 1.814e9, 1e7);
  EXPECT_NEAR(forward_flops(build("resnet34").graph), 2 * 3.664e9, 1e7);
  EXPECT_NEAR(forward_flops(build("resnet50").graph), 2 * 4.089e9, 1e7);
  EXPECT_NEAR(forward_flops(build("resnet101").graph), 2 * 7.801e9, 1e7);
  EXPECT_NEAR(forward_flops(build("resnet152").graph), 2 * 11.514e9, 1e7);
  EXPECT_NEAR(forward_flops(build("wide_resnet50_2").graph), 2 * 11.398e9, 1e7);
  EXPECT_NEAR(forward_flops(build("wide_resnet101_2").graph), 2 * 22.753e9, 1e7);
  EXPECT_NEAR(forward_flops(build("resnext50_32x4d").graph), 2 * 4.230e9, 1e7);
  EXPECT_NEAR(forward_flops(build("resnext101_32x8d").graph), 2 * 16.414e9, 1e7);
  EXPECT_NEAR(forward_flops(build("resnext101_64x4d").graph), 2 * 15.460e9, 1e7);
  EXPECT_EQ(forward_flops(build("resnet50", 224, 8).graph), 8 * forward_flops(build("resnet50").graph));
}

TEST(ResNet, StridesSitOnTheThreeByThree) {
  const Graph graph = build("resnet50").graph;
  for (const Op& op : graph.ops()) {
    if (op.kind != OpKind::conv || !op.name.starts_with("layer")) continue;
    const bool first_of_stage = op.name[5] > '1' && op.name[7] == '0';
    const bool strides = op.name.ends_with("conv2") || op.name.ends_with("downsample.0");
    EXPECT_EQ(op.attr<ConvAttr>().stride, first_of_stage && strides ? 2 : 1) << op.name;
  }
}

// 64 channels of the first stage in 32 groups of 4, twice as many in each later one.
TEST(ResNet, GroupsGrowWithTheStages) {
  const Graph graph = build("resnext50_32x4d").graph;
  for (int stage = 1; stage <= 4; ++stage) {
    const std::string name = "layer" + std::to_string(stage) + ".0.conv2";
    const auto conv = std::ranges::find(graph.ops(), name, &Op::name);
    ASSERT_NE(conv, graph.ops().end());
    EXPECT_EQ(conv->attr<ConvAttr>().groups, 32);
    const std::int64_t width = 64 << stage;
    EXPECT_EQ(graph.tensor(conv->inputs[1]).shape, (Shape{width, width / 32, 3, 3}));
  }
}

TEST(ResNet, LayersAreCountedFromTheStemToTheHead) {
  EXPECT_EQ(layer_count("resnet50"), 18);
  const auto layer = [](const char* name) { return depth_of(name, "resnet50").layer; };
  EXPECT_EQ(layer("conv1.weight"), 0);
  EXPECT_EQ(layer("bn1.bias"), 0);
  EXPECT_EQ(layer("layer1.0.conv1.weight"), 1);
  EXPECT_EQ(layer("layer2.0.downsample.1.weight"), 4);
  EXPECT_EQ(layer("layer4.2.bn3.bias"), 16);
  EXPECT_EQ(layer("fc.bias"), 17);
  EXPECT_EQ(depth_of("layer3.22.conv1.weight", "resnet101").layer, 8 + 22);
  EXPECT_EQ(depth_of("conv1.3.weight", "resnet50d").part, 0);
}

TEST(ResNet, NamesAreUnique) {
  for (const std::string& name : model_names()) {
    std::set<std::string> seen;
    const Model model = build(name);
    for (const Tensor& tensor : model.graph.tensors()) {
      EXPECT_TRUE(seen.insert(tensor.name).second) << name << ": " << tensor.name;
    }
  }
}

TEST(ResNet, TakesAnySizeAndClassCount) {
  ModelOptions options;
  options.model = "resnet18";
  options.classes = 7;
  options.batch = 3;
  for (std::int64_t size : {32, 33, 64, 97, 224}) {
    options.image_size = size;
    const Model model = build_resnet(options);
    EXPECT_EQ(model.graph.tensor(model.logits).shape, (Shape{3, 7}));
    EXPECT_EQ(model.graph.tensor(model.images).shape, (Shape{3, 3, size, size}));
  }
}

TEST(ResNet, RefusesWhatCannotBe) {
  EXPECT_THROW(build("resnet51"), UsageError);
  EXPECT_THROW(build("resnet50", 0), UsageError);
  EXPECT_THROW(build("resnet50", 224, 0), UsageError);
  ModelOptions options;
  options.classes = 1;
  EXPECT_THROW(build_resnet(options), UsageError);
}

TEST(ResNet, EvaluationKeepsNothingForBackward) {
  ModelOptions options;
  options.training = false;
  const Model model = build_resnet(options);
  for (const Op& op : model.graph.ops()) {
    if (op.kind == OpKind::batch_norm) {
      EXPECT_FALSE(op.attr<NormAttr>().training);
      EXPECT_EQ(op.outputs[1], kNone);
    }
    if (op.kind == OpKind::softmax_cross_entropy || op.kind == OpKind::max_pool) {
      EXPECT_EQ(op.outputs[1], kNone);
    }
  }
}

class InitialValue : public testing::Test {
 protected:
  std::vector<float> values(const std::string& name, std::uint64_t seed = 1,
                            bool zero_init_last = false) const {
    const Tensor& tensor = model_.graph.tensor(model_.graph.find(name));
    std::vector<float> result(static_cast<std::size_t>(tensor.shape.elements()));
    initial_value(tensor, seed, zero_init_last, "resnet50", result);
    return result;
  }

  Model model_ = build("resnet50");
};

TEST_F(InitialValue, IsKaimingForConvolutions) {
  const auto w = values("layer2.0.conv2.weight");  // 128x128x3x3: fan out 1152
  double sum = 0.0, squares = 0.0;
  for (float v : w) sum += v, squares += static_cast<double>(v) * v;
  const double count = static_cast<double>(w.size()), deviation = std::sqrt(2.0 / 1152.0);
  // Five standard errors of the mean and of the deviation.
  EXPECT_NEAR(sum / count, 0.0, 5 * deviation / std::sqrt(count));
  EXPECT_NEAR(std::sqrt(squares / count), deviation, 5 * deviation / std::sqrt(2 * count));
}

TEST_F(InitialValue, DependsOnSeedAndNameAlone) {
  EXPECT_EQ(values("conv1.weight"), values("conv1.weight"));
  EXPECT_NE(values("conv1.weight", 1), values("conv1.weight", 2));
  EXPECT_NE(values("layer1.1.conv1.weight"), values("layer1.2.conv1.weight"));
}

TEST_F(InitialValue, OfNormsAndTheClassifier) {
  EXPECT_EQ(values("bn1.weight"), std::vector<float>(64, 1.0F));
  EXPECT_EQ(values("bn1.bias"), std::vector<float>(64, 0.0F));
  EXPECT_EQ(values("bn1.running_mean"), std::vector<float>(64, 0.0F));
  EXPECT_EQ(values("bn1.running_var"), std::vector<float>(64, 1.0F));
  EXPECT_EQ(values("layer1.0.bn3.weight", 1, true), std::vector<float>(256, 0.0F));
  EXPECT_EQ(values("layer1.0.bn2.weight", 1, true), std::vector<float>(64, 1.0F));
  EXPECT_EQ(values("layer1.0.downsample.1.weight", 1, true), std::vector<float>(256, 1.0F));
  const auto fc = values("fc.weight");
  const double bound = 1.0 / std::sqrt(2048.0);
  for (float v : fc) ASSERT_LE(std::abs(v), bound);
  EXPECT_GT(*std::max_element(fc.begin(), fc.end()), 0.99 * bound);
}

}  // namespace
}  // namespace redline::graph
