// Where trained weights are found, and what is told about them. That they give the right logits is checked
// against torchvision in tests/python.
#include "train/trained_model.h"

#include <filesystem>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/atomic_file.h"
#include "base/crc32c.h"
#include "base/error.h"
#include "base/temporary_folder.h"
#include "train/checkpoint.h"
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
