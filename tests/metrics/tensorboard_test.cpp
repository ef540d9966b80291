// What the event files hold byte by byte is for TensorBoard itself to say (tests/python); here is what must
// hold for a run that goes on after a checkpoint.
#include "metrics/tensorboard.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/random_file.h"
#include "base/temporary_folder.h"
#include "base/tfrecord.h"
#include "metrics/histogram.h"

namespace redline::metrics {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> files(const TemporaryFolder& folder) {
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(folder.path())) found.push_back(entry.path());
  std::ranges::sort(found);
  return found;
}

// Records that hold `text`, over all files.
int count(const TemporaryFolder& folder, const std::string& text) {
  int found = 0;
  std::vector<std::uint8_t> scratch;
  for (const fs::path& path : files(folder)) {
    const RandomFile file(path);
    const RecordList list = list_records(file);
    EXPECT_EQ(list.damage, "");
    for (const RecordFrame& frame : list.frames) {
      const auto data = read_record(file, frame, scratch);
      found += std::string(data.begin(), data.end()).find(text) != std::string::npos;
    }
  }
  return found;
}

RunInfo run_info() {
  RunInfo info;
  info.name = "test";
  info.steps_per_epoch = 5;
  info.config = "[model]\nname = \"resnet18\"\n";
  return info;
}

Step step(std::int64_t number) {
  Step step;
  step.step = number;
  step.epoch = (number - 1) / 5;
  step.step_in_epoch = (number - 1) % 5;
  step.seconds = 1;
  return step;
}

// A run of some steps, from the start or from where it was broken off.
void run(const TemporaryFolder& folder, std::int64_t first, std::int64_t last, const std::string& reason,
         std::optional<Resumed> resumed = {}) {
  TensorBoardSink sink(folder.path());
  RunInfo told = run_info();
  told.resumed = resumed;
  sink.begin(told);
  for (std::int64_t i = first; i <= last; ++i) sink.step(step(i));
  End end;
  end.reason = reason;
  sink.end(end);
}

TEST(TensorBoard, ARunThatGoesOnHasEveryStepOnce) {
  const TemporaryFolder folder;
  run(folder, 1, 9, "failed");
  EXPECT_EQ(count(folder, "grad_norm"), 9);
  EXPECT_EQ(count(folder, "session_end_info"), 1);
  const auto before = files(folder);
  run(folder, 8, 12, "interrupted", Resumed{7, true});
  ASSERT_EQ(files(folder).size(), 2u);
  EXPECT_EQ(files(folder).front(), before.front());  // the new one sorts after it, even in the same second
  EXPECT_EQ(count(folder, "grad_norm"), 12);
  EXPECT_EQ(count(folder, "session_end_info"), 0);
  run(folder, 4, 10, "finished", Resumed{3, true});  // an older checkpoint: the second file keeps no step
  EXPECT_EQ(count(folder, "grad_norm"), 10);
  EXPECT_EQ(count(folder, "epoch_time"), 2);
  EXPECT_EQ(count(folder, "session_end_info"), 1);
  for (const char* once :
       {"session_start_info", "_hparams_/experiment", "custom_scalars__config__", "resnet18"})
    EXPECT_EQ(count(folder, once), 1) << once;
}

// A checkpoint that was written before the evaluation that is due with it: the evaluation happens again.
TEST(TensorBoard, AnEvaluationThatIsRepeatedIsThereOnce) {
  for (const bool evaluated : {true, false}) {
    const TemporaryFolder folder;
    {
      TensorBoardSink sink(folder.path());
      sink.begin(run_info());
      for (std::int64_t i = 1; i <= 5; ++i) sink.step(step(i));
      Evaluation evaluation;
      evaluation.step = 5;
      evaluation.weights = "model";
      sink.evaluation(evaluation);
    }
    run(folder, 6, 6, "interrupted", Resumed{5, evaluated});
    // The layout of charts and the list of final numbers name it too.
    EXPECT_EQ(count(folder, "acc5/val"), (evaluated ? 1 : 0) + 2);
    EXPECT_EQ(count(folder, "epoch_time"), 1);
    EXPECT_EQ(count(folder, "grad_norm"), 6);
  }
}

TEST(TensorBoard, ATornRecordGoesWithWhatIsAfterTheStep) {
  const TemporaryFolder folder;
  run(folder, 1, 5, "interrupted");
  const fs::path file = files(folder).front();
  fs::resize_file(file, fs::file_size(file) - 3);
  run(folder, 6, 6, "finished", Resumed{5, true});
  EXPECT_EQ(count(folder, "grad_norm"), 6);
  EXPECT_EQ(count(folder, "epoch_time"), 0);  // it was the record that tore
}

TEST(Histogram, CountsEveryFiniteValueOnce) {
  std::vector<float> values;
  for (int i = 0; i < 1000; ++i) values.push_back(static_cast<float>(i % 100) / 10 - 3);
  values.push_back(NAN);
  values.push_back(INFINITY);
  const Histogram histogram = histogram_of("w", 3, values);
  std::int64_t total = 0;
  for (std::size_t i = 0; i < histogram.buckets.size(); ++i) {
    const auto& bucket = histogram.buckets[i];
    total += bucket.count;
    if (i > 0) {
      EXPECT_NEAR(bucket.left, histogram.buckets[i - 1].right, 1e-6);
    }
    const auto inside = std::ranges::count_if(values, [&](float value) {
      const bool last = i + 1 == histogram.buckets.size();
      return value >= bucket.left && (value < bucket.right || (last && value <= bucket.right));
    });
    EXPECT_EQ(bucket.count, inside) << i;
  }
  EXPECT_EQ(total, 1000);
  EXPECT_FLOAT_EQ(histogram.buckets.front().left, -3);
  EXPECT_FLOAT_EQ(histogram.buckets.back().right, 6.9F);
  EXPECT_EQ(histogram_of("w", 0, std::vector<float>(7, 2.5F)).buckets.size(), 1u);
  EXPECT_EQ(histogram_of("w", 0, std::vector<float>{NAN}).buckets.size(), 0u);
}

TEST(TensorBoard, ALossWithLabelSmoothingIsNamedInItsFirstValue) {
  for (const double smoothing : {0.0, 0.1}) {
    const TemporaryFolder folder;
    TensorBoardSink sink(folder.path());
    RunInfo run = run_info();
    run.label_smoothing = smoothing;
    sink.begin(run);
    for (int i = 1; i <= 3; ++i) sink.step(step(i));
    sink.end({});
    EXPECT_EQ(count(folder, "Loss/train: loss (label smoothing 0.1)"), smoothing > 0 ? 1 : 0);
    EXPECT_EQ(count(folder, "training loss (label smoothing 0.1)"), smoothing > 0 ? 1 : 0);  // of hparams
  }
}

}  // namespace
}  // namespace redline::metrics
