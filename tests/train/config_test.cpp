#include "train/config.h"

#include <cmath>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/error.h"
#include "train/config_file.h"

namespace redline::train {
namespace {

Config valid() {
  Config config;
  config.data.path = "synthetic";
  return config;
}

// What the error says, or "" when there is none.
std::string complaint(const std::function<void()>& action) {
  try {
    action();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(Config, DefaultsAreValid) { EXPECT_NO_THROW(validate(valid())); }

TEST(Config, KeysAndFlagsAreUnique) {
  std::set<std::string> paths, flags;
  for (const Field& field : fields()) {
    EXPECT_TRUE(paths.insert(field.path()).second) << field.path();
    EXPECT_TRUE(field.flags.empty() || flags.insert(field.flag()).second) << field.flag();
    EXPECT_FALSE(field.help.empty()) << field.path();
  }
}

TEST(Config, RoundTripThroughToml) {
  Config config;
  config.model.name = "resnet18";
  config.model.classes = 12;
  config.model.ema = true;
  config.data.path = "a \"quoted\" folder\\with backslash";
  config.augment.ratio = {1.0 / 3.0, 3.0};
  config.optimizer.lr = 0.1;
  config.optimizer.weight_decay = 5e-5;
  config.optimizer.momentum = 0;  // a number without a fraction must stay a number
  config.schedule.steps = 77;
  config.schedule.milestones = {30, 60};
  config.device.dtype = "bf16";
  config.run.seed = 1234567890123;
  const std::string text = to_toml(config, {{"version", "1.2.3"}, {"command", "redline \"train\""}});
  const Config back = parse_config(text, "text");
  EXPECT_EQ(to_toml(back), to_toml(config));
  EXPECT_EQ(back.data.path, config.data.path);
  EXPECT_EQ(back.augment.ratio, config.augment.ratio);
  EXPECT_EQ(back.schedule.steps, 77);
  EXPECT_FALSE(back.schedule.epochs.has_value());
  EXPECT_EQ(back.schedule.milestones, config.schedule.milestones);
  EXPECT_EQ(back.run.seed, config.run.seed);
}

TEST(Config, WholeNumbersServeAsNumbers) {
  EXPECT_EQ(parse_config("[optimizer]\nlr = 1\n", "f").optimizer.lr, 1.0);
}

TEST(Config, UnknownKeyNamesLineAndNearestKey) {
  const std::string text = "[optimizer]\nlr = 0.1\nmomentun = 0.9\n";
  const std::string said = complaint([&] { parse_config(text, "my.toml"); });
  EXPECT_TRUE(has(said, "my.toml:3")) << said;
  EXPECT_TRUE(has(said, "did you mean 'momentum'")) << said;
}

TEST(Config, KeyInTheWrongSectionIsSentToItsOwn) {
  const std::string said = complaint([] { parse_config("[model]\nlr = 0.1\n", "f"); });
  EXPECT_TRUE(has(said, "belongs in [optimizer]")) << said;
}

TEST(Config, UnknownSectionAndWrongTypeAndSyntax) {
  std::string said = complaint([] { parse_config("\n[optimiser]\nlr = 1\n", "f"); });
  EXPECT_TRUE(has(said, "f:2") && has(said, "[optimizer]")) << said;
  said = complaint([] { parse_config("[optimizer]\nlr = 'much'\n", "f"); });
  EXPECT_TRUE(has(said, "f:2") && has(said, "optimizer.lr must be a number")) << said;
  said = complaint([] { parse_config("[schedule]\nepochs = 1.5\n", "f"); });
  EXPECT_TRUE(has(said, "schedule.epochs must be a whole number")) << said;
  said = complaint([] { parse_config("[optimizer]\nlr = = 1\n", "f"); });
  EXPECT_TRUE(has(said, "f:2")) << said;
  said = complaint([] { parse_config("optimizer = 3\n", "f"); });
  EXPECT_TRUE(has(said, "must be a section")) << said;
}

struct Contradiction {
  const char* first;
  const char* second;
  std::function<void(Config&)> make;
};

TEST(Config, ContradictionsNameBothFlags) {
  const std::vector<Contradiction> cases = {
      {"--epochs", "--steps", [](Config& c) { c.schedule.epochs = 1, c.schedule.steps = 1; }},
      {"--lr-step-size", "--lr-milestones",
       [](Config& c) { c.schedule.step_size = 1, c.schedule.milestones = {2}; }},
      {"--lr-warmup-epochs", "--lr-warmup-steps",
       [](Config& c) { c.schedule.warmup_epochs = 1, c.schedule.warmup_steps = 1; }},
      {"--lr-step-size", "--lr-scheduler cosine",
       [](Config& c) { c.schedule.step_size = 1, c.schedule.name = "cosine"; }},
      {"--nesterov", "--opt lars", [](Config& c) { c.optimizer.nesterov = true, c.optimizer.name = "lars"; }},
      {"--nesterov", "--opt adamw",
       [](Config& c) { c.optimizer.nesterov = true, c.optimizer.name = "adamw"; }},
      {"--head-lr", "--lr", [](Config& c) { c.optimizer.head_lr = 0.1, c.optimizer.lr = 0; }},
      {"--nesterov", "--momentum", [](Config& c) { c.optimizer.nesterov = true, c.optimizer.momentum = 0; }},
      {"--amp", "--dtype", [](Config& c) { c.device.amp = true, c.device.dtype = "fp32"; }},
  };
  for (const Contradiction& contradiction : cases) {
    Config config = valid();
    contradiction.make(config);
    const std::string said = complaint([&] { validate(config); });
    EXPECT_TRUE(has(said, contradiction.first) && has(said, contradiction.second))
        << contradiction.first << " with " << contradiction.second << ": " << said;
  }
}

TEST(Config, ValuesOutOfRangeNameTheFlag) {
  const std::vector<std::pair<const char*, std::function<void(Config&)>>> cases = {
      {"--batch-size", [](Config& c) { c.optimizer.batch_size = 0; }},
      {"--batch-size", [](Config& c) { c.optimizer.batch_size = std::int64_t{1} << 40; }},
      {"--accumulate", [](Config& c) { c.optimizer.accumulate = 0; }},
      {"--lr", [](Config& c) { c.optimizer.lr = -1; }},
      {"--lr", [](Config& c) { c.optimizer.lr = std::nan(""); }},
      {"--momentum", [](Config& c) { c.optimizer.momentum = 1; }},
      {"--label-smoothing", [](Config& c) { c.optimizer.label_smoothing = 1; }},
      {"--opt-betas",
       [](Config& c) {
         c.optimizer.betas = {0.9, 1};
       }},
      {"--opt-betas", [](Config& c) { c.optimizer.betas = {0.9}; }},
      {"--opt-eps", [](Config& c) { c.optimizer.epsilon = -1e-8; }},
      {"--clip-norm", [](Config& c) { c.optimizer.clip_norm = std::nan(""); }},
      {"--layer-decay", [](Config& c) { c.optimizer.layer_decay = 1.5; }},
      {"--freeze", [](Config& c) { c.optimizer.freeze = "layer5"; }},
      {"--classes", [](Config& c) { c.model.classes = 1; }},
      {"--image-size", [](Config& c) { c.model.image_size = 0; }},
      {"--scale",
       [](Config& c) {
         c.augment.scale = {0.9, 0.1};
       }},
      {"--scale", [](Config& c) { c.augment.scale = {0.5}; }},
      {"--ra-magnitude", [](Config& c) { c.augment.ra_magnitude = 31; }},
      {"--ra-num-ops", [](Config& c) { c.augment.ra_num_ops = -1; }},
      {"--auto-augment", [](Config& c) { c.augment.auto_augment = "random"; }},
      {"--color-jitter",
       [](Config& c) {
         c.augment.color_jitter = {0.4, -0.4};
       }},
      {"--color-jitter",
       [](Config& c) {
         c.augment.color_jitter = {1, 1, 1, 1};
       }},
      {"--color-jitter",
       [](Config& c) {
         c.augment.color_jitter = {0, 0, 0, 0, 0};
       }},
      {"--random-erase", [](Config& c) { c.augment.random_erase = 2; }},
      {"--random-erase-scale",
       [](Config& c) {
         c.augment.random_erase_scale = {0.5, 0.1};
       }},
      {"--random-erase-ratio", [](Config& c) { c.augment.random_erase_ratio = {1}; }},
      {"--mixup-alpha", [](Config& c) { c.augment.mixup_alpha = -0.2; }},
      {"--cutmix-alpha", [](Config& c) { c.augment.cutmix_alpha = std::nan(""); }},
      {"--interpolation", [](Config& c) { c.data.interpolation = "nearest"; }},
      {"--max-image-pixels", [](Config& c) { c.data.max_image_pixels = 0; }},
      {"--max-image-bytes", [](Config& c) { c.data.max_image_bytes = -1; }},
      {"--lr-milestones",
       [](Config& c) {
         c.schedule.milestones = {3, 3};
       }},
      {"--epochs", [](Config& c) { c.schedule.epochs = 0; }},
      {"--seed", [](Config& c) { c.run.seed = -1; }},
      {"--log-every", [](Config& c) { c.run.log_every = 0; }},
      {"--eval-offset", [](Config& c) { c.run.eval_offset = 1; }},
      {"--target-accuracy", [](Config& c) { c.run.target_accuracy = 75.9; }},
      {"--target-accuracy", [](Config& c) { c.run.target_accuracy = std::nan(""); }},
      {"--target-accuracy", [](Config& c) { c.run.mlperf_log = "auto"; }},
      {"--name", [](Config& c) { c.run.name = "../elsewhere"; }},
      {"no data", [](Config& c) { c.data.path.clear(); }},
  };
  for (const auto& [flag, spoil] : cases) {
    Config config = valid();
    spoil(config);
    const std::string said = complaint([&] { validate(config); });
    EXPECT_TRUE(has(said, flag)) << flag << ": " << said;
  }
}

TEST(Config, FrozenPartsAreTheFrontOfTheNetwork) {
  const auto parts = [](const char* freeze) {
    OptimizerConfig optimizer;
    optimizer.freeze = freeze;
    return frozen_parts(optimizer);
  };
  EXPECT_EQ(parts(""), 0);
  EXPECT_EQ(parts("stem"), 1);
  EXPECT_EQ(parts("layer1,stem"), 2) << "in any order";
  EXPECT_EQ(parts("stem,layer1,layer2,layer3,layer4"), 5);
  const auto gap = complaint([&] { parts("stem,layer2"); });
  EXPECT_TRUE(has(gap, "layer1 comes before layer2")) << gap;
  EXPECT_TRUE(has(gap, "freeze all of stem,layer1,layer2")) << gap;
  EXPECT_TRUE(has(complaint([&] { parts("layer1"); }), "stem comes before layer1"));
  EXPECT_TRUE(has(complaint([&] { parts("stem,fc"); }), "'fc' is not a part that can be frozen"));
  EXPECT_TRUE(has(complaint([&] { parts("stem,,layer1"); }), "'' is not a part"));
}

TEST(Config, UnknownChoiceSuggestsTheNearest) {
  Config config = valid();
  config.model.name = "resnet5O";
  EXPECT_TRUE(has(complaint([&] { validate(config); }), "did you mean 'resnet50'"));
}

// However many ranks there are, a step has as many images; no forward pass has more than --batch-size.
TEST(GlobalBatch, IsSharedByTheRanks) {
  for (const std::int64_t global : {1, 12, 60, 64, 97, 1024}) {
    for (int ranks = 1; ranks <= 12; ++ranks) {
      for (const std::int64_t most : {1, 5, 8, 2000}) {
        Config config = valid();
        config.ranks = ranks;
        config.optimizer.batch_size = most;
        config.optimizer.global_batch = global;
        if (global % ranks != 0) {
          EXPECT_THROW(share_global_batch(config), UsageError);
          continue;
        }
        share_global_batch(config);
        EXPECT_EQ(images_per_step(config), global);
        EXPECT_LE(config.optimizer.batch_size, most);
        const Config once = config;
        share_global_batch(config);  // what is shared already stays
        EXPECT_EQ(config.optimizer.batch_size, once.optimizer.batch_size);
        EXPECT_EQ(before_sharing(config).optimizer.batch_size, most);
      }
    }
  }
  Config config = valid();
  config.ranks = 3;
  config.optimizer.accumulate = 2;
  share_global_batch(config);  // none
  EXPECT_EQ(images_per_step(config), 3 * 2 * 32);
}

}  // namespace
}  // namespace redline::train
