#include "weights/model_weights.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/temporary_folder.h"

namespace redline::weights {
namespace {

// Weights of a model whose values say where they are.
ModelWeights numbered(const std::string& model, std::int64_t classes) {
  ModelWeights weights{model, classes, {}};
  float next = 0;
  for (const graph::Tensor& tensor : model_tensors(model, classes)) {
    std::vector<float>& values = weights.values[tensor.name];
    values.assign(static_cast<std::size_t>(tensor.shape.elements()), next++);
  }
  return weights;
}

TEST(ModelWeights, ComeBackFromAFileAsTheModelTheyAre) {
  const TemporaryFolder folder;
  const ModelWeights weights = numbered("resnet34", 7);
  write_model(folder / "w", weights, ElementType::f32, 55, {{"who", "test"}});
  const SafetensorsReader reader(folder / "w");
  EXPECT_EQ(recognise(reader).model, "resnet34");
  EXPECT_EQ(read_model(reader).classes, 7);
  EXPECT_EQ(read_model(reader).values, weights.values);
  EXPECT_EQ(reader.metadata(), (Metadata{{"format", "pt"}, {"who", "test"}}));
  std::int64_t batches = 0;
  reader.read_bytes(*reader.find("bn1.num_batches_tracked"), std::as_writable_bytes(std::span(&batches, 1)));
  EXPECT_EQ(batches, 55);
}

// torchvision's ResNet-50: 161 parameters; 53 norms with a mean and a variance each.
TEST(ModelWeights, HaveTorchvisionsTensors) {
  int parameters = 0, statistics = 0;
  for (const graph::Tensor& tensor : model_tensors("resnet50", 1000))
    ++(tensor.kind == graph::TensorKind::parameter ? parameters : statistics);
  EXPECT_EQ(parameters, 161);
  EXPECT_EQ(statistics, 106);
}

TEST(ModelWeights, WhatDoesNotMatchIsListed) {
  const TemporaryFolder folder;
  write_model(folder / "w", numbered("resnet18", 7), ElementType::f16, 0, {});
  const SafetensorsReader reader(folder / "w");
  EXPECT_TRUE(compare(model_tensors("resnet18", 7), reader).none());
  const Mismatch head = compare(model_tensors("resnet18", 9), reader);
  EXPECT_EQ(head.other_shape.size(), 2u);
  EXPECT_NE(head.text().find("fc.weight is F16 7x512 there and 9x512 here"), std::string::npos)
      << head.text();
  const Mismatch other = compare(model_tensors("resnet34", 7), reader);
  EXPECT_TRUE(other.unknown.empty());
  EXPECT_FALSE(other.missing.empty());
  EXPECT_NE(other.text().find("more"), std::string::npos) << other.text();
}

TEST(ModelWeights, AveragesAreAskedForByName) {
  const TemporaryFolder folder;
  write_model(folder / "w", numbered("resnet18", 7), ElementType::f32, 0, {});
  const SafetensorsReader reader(folder / "w");
  EXPECT_THROW(read_model(reader, &reader), DataError);  // it has none
}

}  // namespace
}  // namespace redline::weights
