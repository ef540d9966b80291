#include "train/setup.h"

#include <functional>
#include <string>

#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/train/fakes.h"

namespace redline::train {
namespace {

Config small() {
  Config config;
  config.model.name = "resnet18";
  config.model.image_size = 64;
  config.model.classes = 10;
  config.data.path = "synthetic";
  config.device.name = "reference";
  config.optimizer.batch_size = 16;
  return config;
}

TEST(Memory, ARunThatFitsIsLeftAlone) {
  const Config config = small();
  const auto backend = reference_backend();
  const Plans plans = make_plans(config, *backend, graph::DType::f32, 10, 16);
  EXPECT_NO_THROW(
      check_memory(config, *backend, graph::DType::f32, 10, plans, memory_need(config, plans, *backend)));
}

TEST(Memory, TheLargestBatchThatFitsIsNamedAndFits) {
  const Config config = small();
  const auto backend = reference_backend();
  const Plans seven = make_plans(config, *backend, graph::DType::f32, 10, 7);
  const Plans plans = make_plans(config, *backend, graph::DType::f32, 10, 16);
  try {
    check_memory(config, *backend, graph::DType::f32, 10, plans, memory_need(config, seven, *backend));
    FAIL() << "16 images fit where 7 should";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("largest batch that fits is 7 "), std::string::npos)
        << error.what();
  }
}

// A device with memory of its own, on which the reference computes.
class FakeDevice final : public backend::Backend {
 public:
  explicit FakeDevice(std::size_t free) : free_(free) {}
  std::string name() const override { return "fake"; }
  std::string description() const override { return "fake"; }
  bool supports(graph::OpKind, graph::DType) const override { return true; }
  plan::Layout layout(const graph::Graph& graph, graph::TensorId id) const override {
    return reference_->layout(graph, id);
  }
  std::shared_ptr<backend::State> make_state() override { return reference_->make_state(); }
  std::unique_ptr<backend::Executable> compile(std::shared_ptr<const plan::Plan> plan,
                                               std::shared_ptr<backend::State> state) override {
    return reference_->compile(std::move(plan), std::move(state));
  }
  std::size_t memory_overhead(const plan::Plan&, bool owns_weights) const override {
    return owns_weights ? 1000 : 10;
  }
  std::optional<DeviceMemory> device_memory() const override { return DeviceMemory{free_, free_}; }
  std::optional<graph::DType> mixed_precision() const override { return mixed; }
  bool has_tf32() const override { return true; }

  std::optional<graph::DType> mixed = graph::DType::f16;

 private:
  std::size_t free_;
  std::unique_ptr<backend::Backend> reference_ = reference_backend();
};

TEST(Memory, ADeviceHoldsThePlansAndTheHostTheBatches) {
  const Config config = small();
  const FakeDevice device(std::size_t{1} << 40);
  const Plans plans = make_plans(config, device, graph::DType::f32, 10, 16);
  const Memory need = memory_need(config, plans, device);
  const plan::MemoryUse train = plan::memory_use(*plans.train), eval = plan::memory_use(*plans.eval);
  EXPECT_GT(train.activations, eval.activations);  // which use the same memory
  EXPECT_EQ(need.device, train.total() + eval.inputs + 1010);
  EXPECT_LT(need.host, need.device);
  EXPECT_NO_THROW(check_memory(config, device, graph::DType::f32, 10, plans, need));
  try {
    check_memory(config, device, graph::DType::f32, 10, plans, {need.host, need.device - 1});
    FAIL() << "one byte too few";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("of device memory"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("largest batch that fits is 15 "), std::string::npos)
        << error.what();
  }
}

TEST(Memory, SeveralImageSizesShareTheLargestsMemory) {
  Config config = small();
  const FakeDevice device(std::size_t{1} << 40);
  const Plans one = make_plans(config, device, graph::DType::f32, 10, 16);
  config.schedule.train_sizes = {16, config.model.image_size};
  const Plans two = make_plans(config, device, graph::DType::f32, 10, 16);
  ASSERT_EQ(two.smaller.size(), 1U);
  EXPECT_EQ(image_size_of(*two.smaller[0]), 16);
  EXPECT_EQ(image_size_of(*two.train), config.model.image_size);
  EXPECT_EQ(memory_need(config, two, device).device,
            memory_need(config, one, device).device + plan::memory_use(*two.smaller[0]).inputs + 10);
}

TEST(Memory, CheckpointsNeedACopyOfTheStateOnTheHost) {
  Config config = small();
  config.model.ema = true;
  const FakeDevice device(std::size_t{1} << 40);
  const Plans plans = make_plans(config, device, graph::DType::f32, 10, 16);
  const Memory without = memory_need(config, plans, device);  // synthetic data has none unless asked for
  config.run.checkpoint_every = "5m";
  const Memory with = memory_need(config, plans, device);
  const plan::MemoryUse use = plan::memory_use(*plans.train);
  EXPECT_EQ(with.host - without.host, use.parameters + use.statistics + use.optimizer + use.average);
  EXPECT_EQ(with.device, without.device);
}

// Takes a byte for every pixel of a batch's files, and those of the images.
class FakeDecoder final : public backend::ImageDecoder {
 public:
  std::string description() const override { return "fake"; }
  bool takes(std::span<const std::uint8_t>, int, int) override { return true; }
  std::unique_ptr<backend::DeviceImages> make_images(int, int) override { return nullptr; }
  std::vector<int> fill(backend::DeviceImages&, std::span<const backend::EncodedImage>,
                        std::span<const backend::HostImage>, Interpolation) override {
    return {};
  }
  std::size_t memory() const override { return 0; }
  std::size_t memory_need(int rows, int size, int batches, double pixels) const override {
    return static_cast<std::size_t>(rows * (pixels + batches * size * size * 3));
  }
};

TEST(Memory, DecodingCountsWhereTheDeviceDoesIt) {
  const Config config = small();
  const FakeDevice device(std::size_t{1} << 40);
  const Plans plans = make_plans(config, device, graph::DType::f32, 10, 16);
  const Memory without = memory_need(config, plans, device);
  const Decoding decoding{std::make_shared<FakeDecoder>(), 500 * 375};
  const Memory with = memory_need(config, plans, device, decoding);
  const std::int64_t size = config.model.image_size;
  EXPECT_EQ(with.device - without.device, 16 * (500 * 375 + 4 * size * size * 3));  // four batches are kept
  EXPECT_EQ(with.host, without.host);
  EXPECT_THROW(check_memory(config, device, graph::DType::f32, 10, plans, without, decoding), BatchTooLarge);
}

TEST(Memory, ARefusedAllocationNamesWhatFits) {
  const FakeDevice device(std::size_t{1} << 40);
  const Config config = small();
  train::Setup setup;
  setup.config = config;
  setup.classes = 10;
  setup.plans = make_plans(config, device, graph::DType::f32, 10, 16);
  const Memory seven = memory_need(config, make_plans(config, device, graph::DType::f32, 10, 7), device);
  setup.backend = std::make_unique<FakeDevice>(seven.device);
  try {
    refuse_batch(setup, "the device is full");
  } catch (const UsageError& error) {
    EXPECT_EQ(std::string(error.what()),
              "--batch-size 16 does not fit: the device is full: the largest batch that fits is 7 "
              "(--accumulate makes a step of several, --recompute blocks needs less memory)");
  }
}

TEST(Memory, NotEvenOneImage) {
  const Config config = small();
  const auto backend = reference_backend();
  const Plans plans = make_plans(config, *backend, graph::DType::f32, 10, 16);
  EXPECT_THROW(check_memory(config, *backend, graph::DType::f32, 10, plans, {1 << 20, 0}), UsageError);
}

TEST(Setup, ResolvesWhatTheUserLeftOpen) {
  Config config = small();
  config.model.classes.reset();
  const auto setup = prepare(config);
  EXPECT_EQ(setup.classes, 1000);
  EXPECT_EQ(setup.config.model.classes, 1000);
  EXPECT_EQ(setup.config.device.dtype, "fp32");
  EXPECT_EQ(setup.config.schedule.epochs, kDefaultEpochs);
  EXPECT_GE(setup.config.data.workers, 1);
}

TEST(Setup, TheCpuDecodesWhereTheDeviceDoesNot) {
  Config config = small();
  config.data.path = "somewhere";
  const auto backend = reference_backend();
  EXPECT_EQ(resolve_decoder(config, *backend), nullptr);
  config.data.decode = "gpu";
  try {
    resolve_decoder(config, *backend);
    FAIL() << "a decoder where there is none";
  } catch (const UnavailableError& error) {
    EXPECT_STREQ(error.what(), "--decode gpu: reference cannot decode images");
  }
  EXPECT_EQ(prepare(small()).config.data.decode, "cpu");
}

TEST(Setup, ImpossibleShapesAndDevicesAreRefused) {
  Config config = small();
  config.device.name = "abacus";
  EXPECT_THROW(prepare(config), UsageError);
  config = small();
  config.data.path = "/nonexistent/pictures";
  EXPECT_THROW(prepare(config), Error);
}

Precision precision_of(const backend::Backend& device, const std::string& dtype, bool amp = false) {
  Config config = small();
  config.device.dtype = dtype;
  config.device.amp = amp;
  return resolve_dtype(config, device);
}

TEST(Precision, AGpuMixesUnlessToldOtherwise) {
  const FakeDevice gpu(1);
  EXPECT_EQ(precision_of(gpu, "").dtype, graph::DType::f16);
  EXPECT_EQ(precision_of(gpu, "").why, "mixed precision, the default on a GPU");
  EXPECT_EQ(precision_of(gpu, "", /*amp=*/true).dtype, graph::DType::f16);
  EXPECT_EQ(precision_of(gpu, "auto").dtype, graph::DType::f16);
  for (const char* exact : {"fp32", "tf32"}) {
    EXPECT_EQ(precision_of(gpu, exact).dtype, graph::DType::f32) << exact;
    EXPECT_EQ(precision_of(gpu, exact).why, "as configured") << exact;
  }
  EXPECT_EQ(precision_of(gpu, "bf16").dtype, graph::DType::bf16);
}

TEST(Precision, ACpuStaysWithFp32UnlessToldOtherwise) {
  const auto cpu = reference_backend();
  EXPECT_EQ(precision_of(*cpu, "").dtype, graph::DType::f32);
  EXPECT_EQ(precision_of(*cpu, "").why, "the default on a CPU");
  EXPECT_EQ(precision_of(*cpu, "", /*amp=*/true).dtype, graph::DType::f32);
  EXPECT_THROW(precision_of(*cpu, "tf32"), UnavailableError);
}

TEST(Precision, ADeviceThatGainsNothingStaysWithFp32) {
  FakeDevice old(1);
  old.mixed.reset();
  for (const bool amp : {false, true}) EXPECT_EQ(precision_of(old, "", amp).dtype, graph::DType::f32);
  EXPECT_EQ(precision_of(old, "", /*amp=*/true).why, "no other type is faster on this device");
}

TEST(Setup, AmpOnTheReferenceBackendIsPlain) {
  Config config = small();
  config.device.amp = true;
  EXPECT_EQ(prepare(config).dtype, graph::DType::f32);
  config.device.amp = false;
  config.device.dtype = "bf16";
  EXPECT_EQ(prepare(config).dtype, graph::DType::bf16);
  config.device.dtype = "tf32";
  EXPECT_THROW(prepare(config), UnavailableError);
}

TEST(Setup, CpusHaveNoFp16) {
  Config config = small();
  config.device.name = "cpu";
  config.device.dtype = "fp16";
  EXPECT_THROW(prepare(config), UnavailableError);
}

TEST(Setup, AugmentationBeyondTheCropIsTheCpusWork) {
  const auto backend = reference_backend();
  for (const auto& augment : std::vector<std::function<void(AugmentConfig&)>>{
           [](AugmentConfig& a) { a.auto_augment = "ra"; }, [](AugmentConfig& a) { a.color_jitter = {0.4}; },
           [](AugmentConfig& a) { a.random_erase = 0.1; }, [](AugmentConfig& a) { a.cutmix_alpha = 1; }}) {
    Config config = small();
    config.data.path = "pictures";
    augment(config.augment);
    EXPECT_EQ(resolve_decoder(config, *backend), nullptr);
    config.data.decode = "gpu";
    EXPECT_THROW(resolve_decoder(config, *backend), UsageError);
  }
}

TEST(Plans, EvaluationIsNotMixed) {
  Config config = small();
  config.augment.mixup_alpha = 0.2;
  EXPECT_TRUE(train_plan_options(config, graph::DType::f32, 10, 16).model.mixed_labels);
  EXPECT_FALSE(eval_plan_options(config, graph::DType::f32, 10, 16).model.mixed_labels);
}

TEST(Plans, EvaluationTakesThePlainLossAndSharesTheWeights) {
  Config config = small();
  config.model.ema = true;
  config.optimizer.label_smoothing = 0.1;
  config.optimizer.accumulate = 2;
  const plan::Options eval = eval_plan_options(config, graph::DType::f32, 10, 16);
  EXPECT_EQ(eval.model.label_smoothing, 0.0F);
  EXPECT_FALSE(eval.model.training);
  const auto backend = reference_backend();
  const Plans plans = make_plans(config, *backend, graph::DType::f32, 10, 16);
  for (graph::TensorId id : plans.eval->graph().of_kind(graph::TensorKind::parameter)) {
    EXPECT_NE(plans.train->graph().find(plans.eval->graph().tensor(id).name), graph::kNone);
  }
}

}  // namespace
}  // namespace redline::train
