// Where trained weights are found, and what is told about them. That they give the right logits is checked
// against torchvision in tests/python.
#include "train/trained_model.h"

#include <cmath>
#include <filesystem>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/atomic_file.h"
#include "base/crc32c.h"
#include "base/error.h"
#include "base/temporary_folder.h"
#include "train/checkpoint.h"
#include "train/evaluation.h"
#include "train/prediction.h"
#include "train/setup.h"
#include "weights/safetensors.h"

namespace redline::train {
namespace {

namespace fs = std::filesystem;

weights::ModelWeights constant_weights(std::int64_t classes, float value) {
  weights::ModelWeights weights{"resnet18", classes, {}};
  for (const graph::Tensor& tensor : weights::model_tensors("resnet18", classes))
    weights.values[tensor.name].assign(static_cast<std::size_t>(tensor.shape.elements()), value);
  return weights;
}

FileSum sum_of(const fs::path& file) {
  const std::string content = read_file(file);
  return {file.filename().string(), content.size(),
          crc32c({reinterpret_cast<const std::uint8_t*>(content.data()), content.size()})};
}

// runs/a with one checkpoint, as a training run leaves it: weights of a half, moving averages of two.
void make_run(const fs::path& run) {
  const fs::path folder = run / "checkpoints" / "step-40";
  fs::create_directories(folder);
  fs::create_directory_symlink("step-40", run / "checkpoints" / "latest");
  weights::write_model(folder / "model.safetensors", constant_weights(3, 0.5F), weights::ElementType::f32, 40,
                       {});
  std::vector<weights::Entry> entries;
  for (const graph::Tensor& tensor : weights::model_tensors("resnet18", 3)) {
    weights::Dimensions shape;
    for (int axis = 0; axis < tensor.shape.rank(); ++axis) shape.push_back(tensor.shape[axis]);
    entries.push_back({tensor.name + ".ema", weights::ElementType::f32, shape});
  }
  weights::SafetensorsWriter averages(folder / "optimizer.safetensors", entries, {}, Sync::no);
  for (const graph::Tensor& tensor : weights::model_tensors("resnet18", 3))
    averages.write(std::vector<float>(static_cast<std::size_t>(tensor.shape.elements()), 2.0F));
  averages.commit();
  CheckpointState state;
  state.progress.step = 40;
  state.subject.model = "resnet18";
  state.subject.classes = 3;
  state.subject.image_size = 96;
  state.subject.config = "[data]\ncrop_pct = 0.9\n";
  state.subject.class_names = {"daisy", "rose", "tulip"};
  write_file_atomically(folder / "state.json", state_text(state, {sum_of(folder / "model.safetensors"),
                                                                  sum_of(folder / "optimizer.safetensors")}));
}

TEST(TrainedModel, IsFoundByRunCheckpointOrFile) {
  const TemporaryFolder folder;
  make_run(folder / "a");
  for (const fs::path& path :
       {folder / "a", folder / "a/checkpoints/latest", folder / "a/checkpoints/step-40"}) {
    const TrainedModel model = load_trained(path, false);
    EXPECT_EQ(model.weights.classes, 3) << path;
    EXPECT_EQ(model.image_size, 96) << path;
    EXPECT_EQ(model.crop_pct, 0.9) << path;
    EXPECT_EQ(model.step, 40) << path;
  }
  const TrainedModel bare = load_trained(folder / "a/checkpoints/step-40/model.safetensors", false);
  EXPECT_EQ(bare.weights.values.at("fc.bias"), (std::vector<float>(3, 0.5F)));
  EXPECT_FALSE(bare.image_size.has_value());
  EXPECT_THROW(load_trained(folder / "a/checkpoints", false), UsageError);
  EXPECT_THROW(load_trained(folder / "b", false), UsageError);
  EXPECT_EQ(load_trained(folder / "a", true).weights.values.at("fc.bias"), (std::vector<float>(3, 2.0F)));
  EXPECT_THROW(load_trained(folder / "a/checkpoints/step-40/model.safetensors", true), UsageError);
}

TEST(TrainedModel, ADamagedCheckpointIsNotUsed) {
  const TemporaryFolder folder;
  make_run(folder / "a");
  const fs::path file = folder / "a/checkpoints/step-40/model.safetensors";
  std::string content = read_file(file);
  content[content.size() - 5] ^= 1;  // a weight
  write_file_atomically(file, content);
  EXPECT_THROW(load_trained(folder / "a", false), DataError);
}

TEST(TrainedModel, ExportedFilesKnowWhatTheyAre) {
  const TemporaryFolder folder;
  make_run(folder / "a");
  const TrainedModel model = load_trained(folder / "a", false);
  weights::write_model(folder / "out.safetensors", model.weights, weights::ElementType::f16, model.step,
                       export_metadata(model));
  const TrainedModel again = load_trained(folder / "out.safetensors", false);
  EXPECT_EQ(again.image_size, 96);
  EXPECT_EQ(again.crop_pct, 0.9);
  EXPECT_EQ(again.step, 40);
  EXPECT_EQ(again.weights.class_names, (std::vector<std::string>{"daisy", "rose", "tulip"}));
}

TEST(TrainedModel, ALastLayerIsFittedByTheNamesOfItsClasses) {
  const TemporaryFolder folder;
  weights::ModelWeights given = constant_weights(3, 0.5F);
  given.values["fc.bias"] = {1, 2, 3};
  for (std::size_t i = 0; i < given.values["fc.weight"].size(); ++i)
    given.values["fc.weight"][i] = static_cast<float>(i / 512 + 1);
  given.class_names = {"daisy", "rose", "tulip"};
  TrainedModel model;
  model.weights = given;
  weights::write_model(folder / "w.safetensors", given, weights::ElementType::f32, 0, export_metadata(model));
  // The bias and the first number of each row of the weights, after training begins with the file.
  const auto begin = [&](const std::vector<std::string>& names, std::int64_t classes, std::string& said) {
    backend::DeviceOptions device;
    device.device = "reference";
    const auto backend = backend::make_backend(device);
    Config config;
    config.model.name = "resnet18";
    config.model.image_size = 32;
    const auto plan = std::make_shared<plan::Plan>(
        make_plan(eval_plan_options(config, graph::DType::f32, classes, 1), *backend));
    const auto state = backend->make_state();
    const auto executable = backend->compile(plan, state);
    std::vector<float> bias(static_cast<std::size_t>(classes), 9), weight(bias.size() * 512, 9);
    state->write("fc.bias", bias);
    state->write("fc.weight", weight);
    said = initialise_from(folder / "w.safetensors", "resnet18", names, *state);
    state->read("fc.bias", bias);
    state->read("fc.weight", weight);
    for (std::size_t row = 0; row < bias.size(); ++row) EXPECT_EQ(weight[row * 512 + 511], bias[row]);
    return bias;
  };
  using Floats = std::vector<float>;
  std::string said;
  EXPECT_EQ(begin({"daisy", "rose", "tulip"}, 3, said), (Floats{1, 2, 3}));
  EXPECT_EQ(begin({}, 3, said), (Floats{1, 2, 3})) << "nothing is known of the data";
  EXPECT_EQ(begin({"tulip", "daisy", "rose"}, 3, said), (Floats{3, 1, 2}));
  EXPECT_NE(said.find("in the order of the data's classes"), std::string::npos) << said;
  EXPECT_EQ(begin({"fern", "rose"}, 2, said), (Floats{9, 2}));
  EXPECT_NE(said.find("keeps 1 of 2 classes, matched by name, and the others are new"), std::string::npos);
  EXPECT_EQ(begin({"x", "y", "z"}, 3, said), (Floats{9, 9, 9})) << "as many, but others";
  EXPECT_NE(said.find("a new last layer for 3 classes instead of 3"), std::string::npos) << said;
}

TEST(Likeliest, AreTheSoftmaxInOrder) {
  const std::vector<float> logits = {1, 3, 3, -1000};
  const std::vector<Ranked> ranked = likeliest(logits, 9);
  ASSERT_EQ(ranked.size(), 4u);
  EXPECT_EQ(ranked[0].label, 1u);
  EXPECT_EQ(ranked[1].label, 2u);
  EXPECT_NEAR(ranked[0].probability, 1 / (2 + std::exp(-2.0)), 1e-12);
  EXPECT_NEAR(ranked[2].probability, std::exp(-2.0) / (2 + std::exp(-2.0)), 1e-12);
  EXPECT_EQ(ranked[3].probability, 0);
  EXPECT_EQ(likeliest(logits, 2).size(), 2u);
  EXPECT_EQ(likeliest(std::vector<float>{4e30F, 0}, 1)[0].probability, 1);
  EXPECT_TRUE(likeliest({}, 5).empty());
}

TEST(EvaluationResult, TellsClassesApart) {
  EvaluationResult result;
  result.classes = {"cat", "a \"dog\", or so"};
  result.confusion = {{3, 1, 0}, {0, 0, 0}};  // the model has a third class
  EXPECT_EQ(result.count(0), 4);
  EXPECT_DOUBLE_EQ(result.accuracy(0), 0.75);
  EXPECT_DOUBLE_EQ(result.accuracy(1), 0);
  EXPECT_EQ(confusion_csv(result),
            "class,cat,\"a \"\"dog\"\", or so\",2\ncat,3,1,0\n\"a \"\"dog\"\", or so\",0,0,0\n");
  const auto json = nlohmann::json::parse(to_json(result));
  EXPECT_EQ(json["classes"][0]["correct"], 3);
  EXPECT_EQ(json["classes"][1]["name"], "a \"dog\", or so");
}

}  // namespace
}  // namespace redline::train
