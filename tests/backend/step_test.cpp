// Whole steps on a device: what a refused one leaves behind, short batches, metrics that come late,
// accumulation, and memory. Runs on the CPU, and on a GPU where there is one.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <utility>

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/temporary_folder.h"
#include "small_training.h"

namespace redline::backend {
namespace {

#ifdef REDLINE_TEST_CUDA
constexpr const char* kDevice = "cuda";
constexpr graph::DType kNarrow = graph::DType::f16;
constexpr float kRounding = 1e-3F;  // of a loss, between kernels that were chosen by timing
#else
constexpr const char* kDevice = "cpu";
constexpr graph::DType kNarrow = graph::DType::f32;
constexpr float kRounding = 1e-4F;
#endif

DeviceOptions device() {
  DeviceOptions options;
  options.device = kDevice;
  options.threads = 2;
  return options;
}

// Where bits are compared: kernels that add in any order differ from run to run.
DeviceOptions same_bits() {
  DeviceOptions options = device();
  options.deterministic = true;
  return options;
}

class StepTest : public testing::Test {
 protected:
  void SetUp() override {
    try {
      make_backend(device());
    } catch (const UnavailableError& e) {
      GTEST_SKIP() << e.what();
    }
  }
};

TEST_F(StepTest, ARefusedOneChangesNothingButTheScale) {
  plan::Options options = small_resnet(kNarrow);
  options.ema = true;
  SmallTraining training(device(), options, 1);
  training.step();  // momentum and statistics are no longer what they began as
  // Overflows fp16 in backward; in fp32 nothing short of infinity does.
  const float scale = kNarrow == graph::DType::f16 ? 0x1p40F : std::numeric_limits<float>::infinity();
  training.state().write("loss_scale", std::vector<float>{scale});
  auto before = training.values();
  training.step();
  EXPECT_EQ(training.metrics().check[graph::kFinite], 0.0F);
  const auto after = training.values();
  before["skipped_steps"][0] += 1.0F;
  before["good_steps"][0] = 0.0F;
  if (kNarrow == graph::DType::f16) before["loss_scale"][0] /= 2.0F;
  for (const auto& [name, values] : before) EXPECT_EQ(after.at(name), values) << name;
  // The next good one moves everything again.
  training.state().write("loss_scale", std::vector<float>{1.0F});
  training.step();
  EXPECT_EQ(training.metrics().check[graph::kFinite], 1.0F);
  EXPECT_NE(training.values().at("conv1.weight"), before.at("conv1.weight"));
  EXPECT_NE(training.values().at("bn1.running_mean"), before.at("bn1.running_mean"));
  EXPECT_NE(training.values().at("fc.weight.ema"), before.at("fc.weight.ema"));
}

// What is frozen is the same function after a step as before it: its norms use the running statistics, which
// do not move.
TEST_F(StepTest, FrozenPartsStayAsTheyAre) {
  plan::Options options = small_resnet(kNarrow);
  options.model.frozen_parts = 2;  // the stem and the first stage
  options.optimizer = plan::OptimizerKind::adamw;
  SmallTraining training(device(), options, 1);
  training.state().write("loss_scale", std::vector<float>{1.0F});
  const auto before = training.values();
  training.step();
  EXPECT_EQ(training.metrics().check[graph::kFinite], 1.0F);
  for (const auto& [name, values] : training.values()) {
    const bool frozen = name.starts_with("conv1") || name.starts_with("bn1") || name.starts_with("layer1");
    EXPECT_FALSE(frozen && name.find("exp_avg") != std::string::npos) << name;
    if (name.ends_with("loss_scale") || name.ends_with("steps")) continue;
    EXPECT_EQ(values == before.at(name), frozen) << name;
  }
}

// LAMB's step is as long as the rate says, whatever the gradients are.
TEST_F(StepTest, RecomputingChangesNothing) {
  const auto trained = [](plan::Recompute what) {
    plan::Options options = small_resnet(kNarrow);
    options.recompute = what;
    SmallTraining training(same_bits(), options, 5);
    for (int i = 0; i < 3; ++i) training.step();
    return std::pair(training.metrics().sums.loss(), training.values());
  };
  const auto [loss, values] = trained(plan::Recompute::none);
  for (const plan::Recompute what : {plan::Recompute::activations, plan::Recompute::blocks}) {
    const auto [again, values_again] = trained(what);
#ifdef REDLINE_TEST_CUDA  // a fused kernel may round an activation otherwise than one of its own
    EXPECT_NEAR(again, loss, kRounding * loss);
#else
    EXPECT_EQ(again, loss);
    EXPECT_EQ(values_again, values);
#endif
  }
}

TEST_F(StepTest, LambMovesByARateOfTheWeightsNorm) {
  plan::Options options = small_resnet(kNarrow);
  options.optimizer = plan::OptimizerKind::lamb;
  options.head_rate = 0.5F;
  SmallTraining training(device(), options, 1);
  training.state().write("loss_scale", std::vector<float>{1.0F});
  const auto before = training.values();
  training.step();
  const auto after = training.values();
  for (const auto& [name, rate] : {std::pair("layer3.2.conv2.weight", 0.05), std::pair("fc.weight", 0.025)}) {
    double norm = 0, moved = 0;
    for (std::size_t i = 0; i < before.at(name).size(); ++i) {
      const double w = before.at(name)[i], d = after.at(name)[i] - w;
      norm += w * w;
      moved += d * d;
    }
    EXPECT_NEAR(std::sqrt(moved / norm), rate, 1e-3 * rate) << name;
  }
}

TEST_F(StepTest, RowsWithoutALabelCountForNothing) {
  plan::Options options = small_resnet(kNarrow);
  options.model.training = false;
  options.optimizer = plan::OptimizerKind::none;
  SmallTraining whole(device(), options, 2), part(device(), options, 2);
  // An evaluation has no update and no scalars: write what it reads.
  const auto run = [&](SmallTraining& training, const std::vector<std::int32_t>& labels) {
    const graph::Model& model = training.executable().plan().model;
    const std::vector<std::uint8_t> images(
        static_cast<std::size_t>(model.graph.tensor(model.images).shape.elements()), 100);
    training.executable().write_input(model.images, images.data(), images.size());
    training.executable().write_input(model.labels, labels.data(), labels.size() * sizeof labels[0]);
    training.executable().run(Section::compute);
    return training.metrics().sums.values;
  };
  // All images are the same, so each row with one label has the same loss.
  const auto four = run(whole, {1, 1, 1, 1}), one = run(part, {1, -1, -1, -1});
  EXPECT_EQ(four[graph::kSamples], 4.0);
  EXPECT_EQ(one[graph::kSamples], 1.0);
  EXPECT_NEAR(one[graph::kLossSum] * 4.0, four[graph::kLossSum], kRounding * four[graph::kLossSum]);
}

TEST_F(StepTest, MetricsComeInTheOrderTheyWereAskedFor) {
  SmallTraining training(device(), small_resnet(kNarrow), 3);
  training.state().write("loss_scale", std::vector<float>{1.0F});
  EXPECT_FALSE(training.executable().take_metrics(/*wait=*/true).has_value()) << "none was asked for";
  const std::vector<std::vector<std::int32_t>> labels = {{0, -1, -1, -1}, {0, 1, -1, -1}, {0, 1, 2, -1}};
  for (const auto& some : labels) {
    training.step(some);
    training.executable().request_metrics();
  }
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const auto found = training.executable().take_metrics(/*wait=*/true);
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->sums.samples(), static_cast<double>(i + 1));
    EXPECT_EQ(found->check[graph::kFinite], 1.0F);
    EXPECT_GT(found->check[graph::kGradientNorm], 0.0F);
  }
  EXPECT_FALSE(training.executable().take_metrics(/*wait=*/false).has_value());
}

TEST_F(StepTest, OneUnitIsComputeAndUpdate) {
  SmallTraining apart(same_bits(), small_resnet(kNarrow), 4), united(same_bits(), small_resnet(kNarrow), 4);
  for (SmallTraining* training : {&apart, &united}) {
    training->state().write("loss_scale", std::vector<float>{1.0F});
    training->step();
  }
  // Once more on the same images: what differs is how the sections are run.
  apart.executable().run(Section::compute);
  apart.executable().run(Section::update);
  united.executable().run(Section::step);
  const auto expected = united.values(), found = apart.values();
  for (const auto& [name, values] : expected) EXPECT_EQ(found.at(name), values) << name;
}

#ifdef REDLINE_TEST_CUDA
// Comparing kernels takes many steps, of which nothing may remain. What was timed before is remembered.
TEST_F(StepTest, ComparingKernelsInTheStepLeavesNoTrace) {
  setenv("FAKE_MILLISECONDS", "100", 1);  // of a step on the emulated GPU: short enough to be compared
  const TemporaryFolder cache;
  int told = 0;
  bool comparing = false, enough = false;  // one comparison will do
  DeviceOptions options = device();
  options.cache_dir = cache / "";
  options.tuning = Tuning::step;
  options.tuning_progress = [&](std::int64_t, std::int64_t) {
    ++told;
    enough = comparing;
  };
  options.stop = [&] { return enough; };
  plan::Options small = small_resnet(kNarrow);
  small.model.model = "resnet18";
  small.model.image_size = 32;
  small.model.batch = 2;
  SmallTraining compared(options, small, 4);
  EXPECT_GT(std::exchange(told, 0), 0) << "nothing was timed";
  compared.state().write("loss_scale", std::vector<float>{1.0F});  // no step is refused
  const auto before = compared.values();
  comparing = true;
  compared.step({0, 3});
  const bool emulated = compared.backend().description().find("emulated") != std::string::npos;
  if (told == 0 && !emulated) GTEST_SKIP() << "this GPU has no close candidates";
  EXPECT_EQ(std::exchange(told, 0), 1) << "comparisons";

  comparing = enough = false;
  options.tuning = Tuning::all;
  SmallTraining plain(options, small, 4);
  plain.state().write("loss_scale", std::vector<float>{1.0F});
  plain.step({0, 3});
  EXPECT_EQ(told, 0) << "timed again";
  const auto after = plain.values();
  for (const auto& [name, values] : compared.values()) {
    double moved = 0, off = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      moved = std::max(moved, std::abs(static_cast<double>(after.at(name)[i]) - before.at(name)[i]));
      off = std::max(off, std::abs(static_cast<double>(after.at(name)[i]) - values[i]));
    }
    // Kernels that add in any order differ in their last bits; a second step would move as far as the first.
    EXPECT_LE(off, 0.1 * moved) << name;
  }
}
#endif

TEST_F(StepTest, ACopyIsOfTheMomentItWasTaken) {
  plan::Options options = small_resnet(kNarrow);
  options.ema = true;
  SmallTraining training(device(), options, 7);
  training.state().write("loss_scale", std::vector<float>{1.0F});  // no step is refused
  const auto copy = training.state().make_copy();
  for (int times = 0; times < 2; ++times) {  // the memory is used again
    training.step();
    const auto moment = training.values();
    copy->take();
    training.step();
    for (const auto& [name, values] : moment) {
      std::vector<float> found(values.size());
      copy->read(name, found);
      EXPECT_EQ(found, values) << name;
    }
    EXPECT_NE(training.values().at("conv1.weight"), moment.at("conv1.weight"));
  }
}

// As averages are put in place of weights: what kernels read changes with them, and comes back with them.
TEST_F(StepTest, SwappedTensorsAreWhatRunsRead) {
  plan::Options options = small_resnet(kNarrow);
  options.ema = true;
  SmallTraining training(same_bits(), options, 5);
  training.step();
  State& state = *training.shared_state();
  std::vector<NamePair> pairs;
  for (const std::string& name : state.names()) {
    if (state.tensor(name).kind != graph::TensorKind::average) continue;
    pairs.emplace_back(name.substr(0, name.size() - std::string(".ema").size()), name);
    // Far from the weights, so that a copy that was not refreshed shows.
    state.write(name,
                std::vector<float>(static_cast<std::size_t>(state.tensor(name).shape.elements()), 0.5F));
  }
  ASSERT_FALSE(pairs.empty());
  const auto before = training.values();
  const auto logits = [&] {
    const graph::Model& model = training.executable().plan().model;
    training.executable().run(Section::compute);
    std::vector<float> values(static_cast<std::size_t>(model.graph.tensor(model.logits).shape.elements()));
    training.executable().read(model.logits, values);
    return values;
  };
  const auto trained = logits();
  const auto statistics = training.values();  // which a run moves
  state.swap(pairs);
  const auto swapped = training.values();
  for (const auto& [weights, average] : pairs) {
    EXPECT_EQ(swapped.at(weights), before.at(average)) << weights;
    EXPECT_EQ(swapped.at(average), statistics.at(weights)) << average;
  }
  const auto averaged = logits();
  EXPECT_NE(averaged, trained);
  state.swap(pairs);
  EXPECT_EQ(logits(), trained);
}

// An evaluation at another image size, in the memory that training uses too, changes nothing of it.
TEST_F(StepTest, ExecutablesOfOneStateTakeTurns) {
  SmallTraining alone(same_bits(), small_resnet(kNarrow), 8), together(same_bits(), small_resnet(kNarrow), 8);
  plan::Options options = small_resnet(kNarrow);
  options.model.training = false;
  options.optimizer = plan::OptimizerKind::none;
  options.model.image_size = 32;
  const auto plan = std::make_shared<plan::Plan>(plan::make_plan(options, together.backend()));
  const auto state = together.shared_state();
  const auto other = together.backend().compile(plan, state);
  EXPECT_GT(together.executable().plan().arena_bytes, plan->arena_bytes);
  EXPECT_EQ(other->memory().arena, together.executable().memory().arena) << "they share it";
  const std::vector<std::uint8_t> images(
      static_cast<std::size_t>(plan->graph().tensor(plan->model.images).shape.elements()), 100);
  const std::vector<std::int32_t> labels(kSmallBatch, 1);
  for (int i = 0; i < 2; ++i) {
    alone.step();
    together.step();  // may still be under way when the other begins
    other->write_input(plan->model.images, images.data(), images.size());
    other->write_input(plan->model.labels, labels.data(), labels.size() * sizeof labels[0]);
    other->run(Section::compute);
  }
  const auto expected = alone.values(), found = together.values();
  for (const auto& [name, values] : expected) EXPECT_EQ(found.at(name), values) << name;
}

#ifdef REDLINE_TEST_CUDA
// What --dry-run promises against what is allocated. A network large enough for the work space not to be most
// of it.
TEST_F(StepTest, MemoryIsAsThePlanSays) {
  plan::Options options = small_resnet(kNarrow);
  options.model.image_size = 224;
  options.model.batch = 128;
  const auto backend = make_backend(device());
  const std::size_t free = backend->device_memory()->free;
  const auto plan = std::make_shared<plan::Plan>(plan::make_plan(options, *backend));
  const auto executable = backend->compile(plan, backend->make_state());
  const auto promised = static_cast<double>(plan::memory_use(*plan).total() +
                                            backend->memory_overhead(*plan, /*owns_weights=*/true));
  EXPECT_NEAR(static_cast<double>(executable->memory().total()), promised, 0.05 * promised);
  // And what the device lacks then. The driver takes some for code, which Backend::device_memory leaves free.
  constexpr double kCode = 256 << 20;
  executable->run(Section::step);
  executable->request_metrics();
  executable->take_metrics(/*wait=*/true);
  const auto taken = static_cast<double>(free - backend->device_memory()->free);
  EXPECT_GE(taken, 0.95 * promised);
  EXPECT_LE(taken, 1.05 * promised + kCode);
}

TEST_F(StepTest, AFullDeviceIsNamedAsSuch) {
  const auto backend = make_backend(device());
  plan::Options options = small_resnet(graph::DType::f32);
  options.model.image_size = 224;
  const auto one = plan::memory_use(plan::make_plan(options, *backend)).activations / kSmallBatch;
  options.model.batch = static_cast<std::int64_t>(2 * backend->device_memory()->total / one);
  const auto plan = std::make_shared<plan::Plan>(plan::make_plan(options, *backend));
  const std::size_t free = backend->device_memory()->free;
  EXPECT_THROW(backend->compile(plan, backend->make_state()), OutOfMemoryError);
  EXPECT_GE(backend->device_memory()->free + (std::size_t{1} << 30), free)
      << "what was allocated is given back";
}

TEST_F(StepTest, PinnedInputsGiveTheSame) {
  SmallTraining training(same_bits(), small_resnet(graph::DType::f16), 6);
  const HostAllocator pinned = training.backend().input_allocator();
  ASSERT_TRUE(pinned.allocate && pinned.release);
  const graph::Model& model = training.executable().plan().model;
  const auto bytes = static_cast<std::size_t>(model.graph.tensor(model.images).shape.elements());
  std::vector<std::uint8_t> images(bytes);
  Random random(9);
  for (std::uint8_t& byte : images) byte = static_cast<std::uint8_t>(random.next_u32());
  auto* copy = static_cast<std::uint8_t*>(pinned.allocate(bytes));
  std::copy(images.begin(), images.end(), copy);
  training.step();  // labels and scalars
  const auto logits = [&](const void* from) {
    training.executable().write_input(model.images, from, bytes);
    training.executable().run(Section::compute);
    std::vector<float> values(static_cast<std::size_t>(model.graph.tensor(model.logits).shape.elements()));
    training.executable().read(model.logits, values);
    return values;
  };
  const auto expected = logits(images.data());
  for (int i = 0; i < 4; ++i) {  // more often than there are staging buffers
    EXPECT_EQ(logits(copy), expected);
  }
  pinned.release(copy, bytes);
}
#endif

}  // namespace
}  // namespace redline::backend
