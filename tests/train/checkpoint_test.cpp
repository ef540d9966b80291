// Checkpoints on disk: what is written comes back, what is damaged is never used.
#include "train/checkpoint.h"

#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/random.h"
#include "tests/base/temporary_folder.h"
#include "tests/train/fake_state.h"
#include "train/resume.h"

namespace redline::train {
namespace {

namespace fs = std::filesystem;

CheckpointState state_at(std::int64_t step) {
  CheckpointState state;
  state.progress.step = step;
  state.progress.epoch = 2;
  state.progress.step_in_epoch = 17;
  state.progress.schedule_step = step;
  state.progress.evaluated = true;
  state.progress.samples = 12345;
  state.progress.skipped_steps = 3;
  state.progress.gap.host = 0.1;  // no binary fraction
  state.progress.epoch_seconds = 0.3;
  state.progress.best = Best{step - 1, 0.7, "ema", 2, 9.5};
  state.subject = {"resnet18", 3, 32, 64, 100, 6400, "[model]\nname = \"resnet18\"\n"};
  return state;
}

fs::path write(const fs::path& folder, std::int64_t step, FakeState tensors) {
  Snapshot snapshot(tensors);
  snapshot.take();
  write_checkpoint(folder, snapshot, state_at(step));
  return folder / checkpoint_name(step);
}

void put(const fs::path& path, const std::string& content) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
}

TEST(Checkpoint, GivesBackEveryBitAndEveryCount) {
  const TemporaryFolder folder;
  const FakeState written(1);
  const Checkpoint found = open_checkpoint(write(folder.path(), 40, written));
  const Progress& progress = found.state.progress;
  EXPECT_EQ(progress.step, 40);
  EXPECT_EQ(progress.epoch, 2);
  EXPECT_EQ(progress.step_in_epoch, 17);
  EXPECT_EQ(progress.schedule_step, 40);
  EXPECT_TRUE(progress.evaluated);
  EXPECT_EQ(progress.samples, 12345);
  EXPECT_EQ(progress.skipped_steps, 3);
  EXPECT_EQ(progress.gap.host, 0.1);
  EXPECT_EQ(progress.epoch_seconds, 0.3);
  ASSERT_TRUE(progress.best);
  EXPECT_EQ(progress.best->step, 39);
  EXPECT_EQ(progress.best->top1, 0.7);
  EXPECT_EQ(progress.best->weights, "ema");
  EXPECT_EQ(progress.best->epoch, 2);
  EXPECT_EQ(progress.best->elapsed, 9.5);
  EXPECT_EQ(found.state.subject.config, state_at(0).subject.config);

  FakeState read(2);
  EXPECT_TRUE(restore(found, read).empty());
  for (const std::string& name : written.names()) EXPECT_EQ(read.values(name), written.values(name)) << name;
  EXPECT_EQ(folder.entries(), 1);
}

// Flipped bits, cut ends, added bytes, blocks of zeros and missing files, at random places of all three
// files.
TEST(Checkpoint, DamageIsAlwaysFound) {
  const TemporaryFolder folder;
  const fs::path path = write(folder.path(), 7, FakeState(3));
  Random random(5);
  const std::vector<std::string> names = {"model.safetensors", "optimizer.safetensors", "state.json"};
  for (int i = 0; i < 200; ++i) {
    const fs::path file = path / names[random.below(names.size())];
    const std::string whole = read_file(file);
    std::string damaged = whole;
    const std::size_t at = random.below(whole.size());
    const std::uint64_t kind = random.below(20);
    if (kind < 12) {
      damaged[at] = static_cast<char>(damaged[at] ^ (1 << random.below(8)));
    } else if (kind < 15) {
      damaged.resize(at);
    } else if (kind < 16) {
      damaged += static_cast<char>(random.below(256));
    } else if (kind < 19) {
      for (std::size_t k = at; k < std::min(at + 64, damaged.size()); ++k) damaged[k] = 0;
    } else {
      damaged.clear();
      fs::remove(file);
    }
    if (damaged == whole) continue;  // zeros over zeros
    if (kind < 19) put(file, damaged);
    try {
      open_checkpoint(path);
      ADD_FAILURE() << file << " damaged at " << at << " in way " << kind << " was taken";
    } catch (const Error& error) {
      EXPECT_TRUE(error.code() == ExitCode::bad_data || error.code() == ExitCode::io) << error.what();
      EXPECT_NE(std::string(error.what()).find(file.filename().string()), std::string::npos) << error.what();
    }
    put(file, whole);
  }
  EXPECT_NO_THROW(open_checkpoint(path));
}

TEST(Checkpoint, NoByteOfTheStateCanChangeUnseen) {
  std::vector<FileSum> files;
  const std::string whole = state_text(state_at(9), {{"model.safetensors", 5, 0xabcdef01U}});
  ASSERT_NO_THROW(parse_state(whole, files));
  ASSERT_EQ(files.size(), 1U);
  EXPECT_EQ(files[0].crc32c, 0xabcdef01U);
  for (std::size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    EXPECT_THROW(parse_state(damaged, files), DataError) << at;
    EXPECT_THROW(parse_state(whole.substr(0, at), files), DataError) << at;
  }
}

TEST(Restore, AnotherShapeIsRefusedAndNamed) {
  const TemporaryFolder folder;
  const Checkpoint checkpoint = open_checkpoint(write(folder.path(), 1, FakeState(1)));
  FakeState other(2, true, /*classes=*/5);
  const std::vector<float> before = other.values("conv1.weight");
  try {
    restore(checkpoint, other);
    FAIL() << "five classes from three";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("fc.weight is 3x4 there and 5x4 here"), std::string::npos)
        << error.what();
  }
  EXPECT_EQ(other.values("conv1.weight"), before);  // nothing is changed before all is checked
}

TEST(Restore, NewAveragesBeginAsTheWeights) {
  const TemporaryFolder folder;
  const FakeState written(1, /*averages=*/false);
  FakeState read(2);
  const auto notes = restore(open_checkpoint(write(folder.path(), 1, written)), read);
  EXPECT_EQ(notes.size(), 1U);
  EXPECT_EQ(read.values("fc.weight.ema"), written.values("fc.weight"));
  FakeState without(3, /*averages=*/false);
  EXPECT_EQ(restore(open_checkpoint(write(folder.path(), 2, FakeState(4))), without).size(), 1U);
}

TEST(NewestCheckpoint, ADamagedOneIsSetAsideAndTheOneBeforeUsed) {
  const TemporaryFolder folder;
  for (const std::int64_t step : {5, 10, 100}) write(folder.path(), step, FakeState(1));
  EXPECT_EQ(newest_checkpoint(folder.path())->state.progress.step, 100);
  put(folder / "step-100" / "model.safetensors", "short");
  const auto found = newest_checkpoint(folder.path());
  ASSERT_TRUE(found);
  EXPECT_EQ(found->state.progress.step, 10);
  EXPECT_EQ(fs::read_symlink(folder / "latest"), "step-10");
  EXPECT_TRUE(fs::exists(folder / "step-100.damaged"));
  EXPECT_EQ(list_checkpoints(folder.path()), (std::vector<std::int64_t>{10, 5}));
}

TEST(NewestCheckpoint, NoneIsNoneAndAllDamagedIsAnError) {
  const TemporaryFolder folder;
  EXPECT_FALSE(newest_checkpoint(folder / "missing"));
  fs::create_directories(folder / "step-3");
  EXPECT_THROW(newest_checkpoint(folder.path()), DataError);
  EXPECT_TRUE(fs::exists(folder / "step-3"));  // left for its owner to look at
}

TEST(Differences, AnotherModelIsRefusedNamingBoth) {
  Subject saved = state_at(1).subject, now = saved;
  now.model = "resnet50";
  now.classes = 10;
  try {
    differences(saved, now, {});
    FAIL() << "another model";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("resnet18 with 3 classes and this run is of resnet50 with 10"),
              std::string::npos)
        << error.what();
  }
}

TEST(Differences, OtherClassesAreRefused) {
  Subject saved = state_at(1).subject, now = saved;
  now.class_names = {"a", "b", "c"};
  EXPECT_NO_THROW(differences(saved, now, {})) << "the checkpoint does not say";
  saved.class_names = now.class_names;
  EXPECT_NO_THROW(differences(saved, now, {}));
  now.class_names = {"b", "a", "c"};
  EXPECT_THROW(differences(saved, now, {}), UsageError);
}

TEST(Differences, OtherInitialWeightsAreRefused) {
  const Subject saved = state_at(1).subject;
  Config config;
  config.model.init = "/other.safetensors";
  EXPECT_THROW(differences(saved, saved, config), UsageError);
}

TEST(CheckpointState, KeepsTheNamesOfClasses) {
  CheckpointState state = state_at(1);
  state.subject.class_names = {"a \"rose\"", "b", "ü"};
  std::vector<FileSum> files;
  EXPECT_EQ(parse_state(state_text(state, {}), files).subject.class_names, state.subject.class_names);
  state.subject.class_names.clear();
  EXPECT_TRUE(parse_state(state_text(state, {}), files).subject.class_names.empty());
}

TEST(Differences, ChangedOptionsAreNamed) {
  const Subject saved = state_at(1).subject;
  Config config;
  config.model.name = "resnet18";
  config.ranks = saved.images_per_step / config.optimizer.batch_size;
  EXPECT_EQ(config.ranks, 2);
  EXPECT_TRUE(differences(saved, saved, config).empty());
  config.optimizer.lr = 0.05;
  config.run.quiet = true;  // does not matter
  EXPECT_EQ(differences(saved, saved, config), std::vector<std::string>{"--lr is 0.05 instead of 0.1"});
  config.ranks = 1;
  EXPECT_EQ(differences(saved, saved, config).front(), "one rank instead of 2");
}

TEST(KeepDtype, ARunGoesOnInTheTypeItWasBegunIn) {
  const TemporaryFolder folder;
  Config config;
  EXPECT_EQ(keep_dtype(config, {}).device.dtype, "") << "a new run";
  EXPECT_EQ(keep_dtype(config, folder.path()).device.dtype, "") << "nothing is known of the run";
  // An option that this version does not know must not hide the type.
  std::ofstream(folder.path() / "config.toml")
      << "[device]\nname = \"cuda\"\nunheard_of = 3\ndtype = \"fp32\"\n";
  EXPECT_EQ(keep_dtype(config, folder.path()).device.dtype, "fp32");
  config.device.amp = true;
  EXPECT_EQ(keep_dtype(config, folder.path()).device.dtype, "") << "--amp says which";
  config.device.amp = false;
  config.device.dtype = "bf16";
  EXPECT_EQ(keep_dtype(config, folder.path()).device.dtype, "bf16") << "--dtype says which";
  config.device.dtype = "";
  std::ofstream(folder.path() / "config.toml") << "[device\n";
  EXPECT_EQ(keep_dtype(config, folder.path()).device.dtype, "") << "a damaged file";
}

TEST(Position, FollowsTheImagesWhenTheBatchChanges) {
  CheckpointState saved = state_at(217);  // epoch 2, step 17 of 100, 64 images each: 1088 images of 6400
  Config epochs;
  epochs.schedule.epochs = 90;
  EXPECT_EQ(position(saved, saved.subject, epochs).step_in_epoch, 17);
  Subject now = saved.subject;
  now.images_per_step = 100;
  now.steps_per_epoch = 64;
  const Progress found = position(saved, now, epochs);
  EXPECT_EQ(found.step, 217);
  EXPECT_EQ(found.epoch, 2);
  EXPECT_EQ(found.step_in_epoch, 11);  // 1100 images: none is seen twice
  EXPECT_EQ(found.schedule_step, 2 * 64 + 11);
  Config steps;
  steps.schedule.steps = 1000;
  EXPECT_EQ(position(saved, now, steps).schedule_step, 217);
  saved.progress.step_in_epoch = 100;  // the epoch is done
  EXPECT_EQ(position(saved, now, epochs).step_in_epoch, 64);
}

}  // namespace
}  // namespace redline::train
