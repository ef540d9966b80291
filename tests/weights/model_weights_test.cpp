#include "weights/model_weights.h"

#include <cmath>

#include <gtest/gtest.h>

#include "base/build_info.h"
#include "base/error.h"
#include "base/temporary_folder.h"
#include "weights/safetensors.h"

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
  EXPECT_EQ(reader.metadata().at("format"), "pt");
  EXPECT_EQ(reader.metadata().at("who"), "test");
  EXPECT_EQ(reader.metadata().size(), 2 + program_facts().size());
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

// What diverged, or is damaged, must not pass for a network that is merely bad.
TEST(ModelWeights, ValuesThatNoNetworkComputesWithAreRefused) {
  const TemporaryFolder folder;
  const auto complaint = [&](const char* name, float value) -> std::string {
    ModelWeights weights = numbered("resnet18", 3);
    weights.values.at(name)[1] = value;
    write_model(folder / "w", weights, ElementType::f32, 0, {});
    try {
      read_model(*open_tensors(folder / "w"));
    } catch (const DataError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(complaint("fc.bias", -1), "");
  EXPECT_NE(complaint("fc.bias", std::nanf("")).find("fc.bias holds nan at element 1"), std::string::npos);
  EXPECT_NE(complaint("conv1.weight", INFINITY), "");
  EXPECT_NE(complaint("bn1.running_var", -0.5F).find("bn1.running_var holds a variance of -0.5"),
            std::string::npos);
}

// As DataParallel, torch.compile and training scripts leave them.
TEST(ModelWeights, PrefixesOfWrappersAreTakenOff) {
  const TemporaryFolder folder;
  const auto names_of = [&](const std::vector<std::string>& names) {
    std::vector<Entry> entries;
    for (const std::string& name : names) entries.push_back({name, ElementType::f32, {1}});
    SafetensorsWriter writer(folder / "w", entries, {}, Sync::no);
    for (std::size_t i = 0; i < names.size(); ++i) writer.write(std::vector<float>{1});
    writer.commit();
    const auto file = open_tensors(folder / "w");
    std::vector<std::string> found;
    for (const Entry& entry : file->entries()) found.push_back(entry.name);
    return found;
  };
  EXPECT_EQ(names_of({"module.a", "_orig_mod.module.b", "model.c", "d"}),
            (std::vector<std::string>{"a", "b", "c", "d"}));
  EXPECT_EQ(names_of({"model.a", "a"}), (std::vector<std::string>{"model.a", "a"})) << "two would become one";
}

}  // namespace
}  // namespace redline::weights
