// Where trained weights are found, and what is told about them. That they give the right logits is checked
// against torchvision in tests/python.
#include "train/trained_model.h"

#include <filesystem>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/temporary_folder.h"
#include "train/evaluation.h"

namespace redline::train {
namespace {

namespace fs = std::filesystem;

weights::ModelWeights constant_weights(std::int64_t classes, float value) {
  weights::ModelWeights weights{"resnet18", classes, {}};
  for (const graph::Tensor& tensor : weights::model_tensors("resnet18", classes))
    weights.values[tensor.name].assign(static_cast<std::size_t>(tensor.shape.elements()), value);
  return weights;
}

// runs/a with one checkpoint, as a training run leaves it.
void make_run(const fs::path& run) {
  fs::create_directories(run / "checkpoints" / "step-40");
  fs::create_directory_symlink("step-40", run / "checkpoints" / "latest");
  weights::write_model(run / "checkpoints" / "step-40" / "model.safetensors", constant_weights(3, 0.5F),
                       weights::ElementType::f32, 40, {});
  write_file_atomically(run / "config.toml",
                        "[model]\nname = \"resnet18\"\nimage_size = 96\n[data]\ncrop_pct = 0.9\n");
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
  EXPECT_THROW(load_trained(folder / "a", true), Error);  // it kept no averages
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
