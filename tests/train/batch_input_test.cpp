#include "train/batch_input.h"

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <set>
#include <utility>

#include "base/error.h"
#include "data/loader.h"
#include "tests/data/memory_source.h"
#include "tests/train/fakes.h"

namespace redline::train {
namespace {

constexpr int kBatch = 8, kSize = 32;

plan::Options options() {
  plan::Options options;
  options.model.model = "resnet18";
  options.model.classes = 80;
  options.model.image_size = kSize;
  options.model.batch = kBatch;
  options.model.training = false;
  options.optimizer = plan::OptimizerKind::none;
  return options;
}

// A device that reads its inputs late: what was written waits, with its lease, until read_oldest().
class LateDevice final : public backend::Executable {
 public:
  explicit LateDevice(std::shared_ptr<const plan::Plan> plan) : plan_(std::move(plan)) {}

  struct Input {
    const std::uint8_t* data = nullptr;
    std::vector<std::uint8_t> promised;  // what was there when it was written
    Lease lease;
  };

  const plan::Plan& plan() const override { return *plan_; }
  void write_input(graph::TensorId id, const void* data, std::size_t bytes, Lease lease) override {
    ASSERT_EQ(bytes, plan_->placement(id).bytes);
    const auto* first = static_cast<const std::uint8_t*>(data);
    waiting.push_back({first, {first, first + bytes}, std::move(lease)});
  }
  void read_oldest() {
    const Input& input = waiting.front();
    EXPECT_TRUE(std::equal(input.promised.begin(), input.promised.end(), input.data))
        << "the source filled a buffer that the device had not read";
    waiting.pop_front();
  }
  void run(backend::Section, std::vector<backend::OpTime>*) override {}
  void read(graph::TensorId, std::span<float>) const override {}
  void write(graph::TensorId, std::span<const float>) override {}
  void request_metrics() override {}
  std::optional<backend::Metrics> take_metrics(bool) override { return {}; }
  backend::ExecutableMemory memory() const override { return {}; }

  std::deque<Input> waiting;

 private:
  std::shared_ptr<const plan::Plan> plan_;
};

class BatchInputTest : public testing::Test {
 protected:
  BatchInputTest() : device_(std::make_shared<plan::Plan>(plan::make_plan(options(), *reference_backend()))) {
    data::LoaderOptions o;
    o.batch_size = kBatch;
    o.threads = 3;
    o.slots = 4;
    o.transform.train = true;
    o.transform.size = kSize;
    loader_ = std::make_unique<data::Loader>(std::make_shared<data::MemorySource>(160), o);
    loader_->start_epoch(0);
  }

  static constexpr std::size_t kInputs = 2;  // images and labels

  LateDevice device_;
  std::unique_ptr<data::Loader> loader_;
};

TEST_F(BatchInputTest, ABufferIsNotFilledBeforeTheDeviceGaveItBack) {
  std::set<const std::uint8_t*> buffers;
  int batches = 0;
  for (data::Batch batch; loader_->next(batch); ++batches) {
    for (const LateDevice::Input& input : device_.waiting) EXPECT_NE(batch.images, input.data);
    buffers.insert(batch.images);
    write_batch(device_, std::move(batch));
    // Two batches stay behind, as they do on a GPU that is busy.
    while (device_.waiting.size() > 2 * kInputs) device_.read_oldest();
  }
  EXPECT_EQ(batches, 20);
  EXPECT_LE(buffers.size(), 4u);
}

TEST_F(BatchInputTest, TheDeviceAloneHoldsTheLease) {
  data::Batch batch;
  ASSERT_TRUE(loader_->next(batch));
  const std::weak_ptr<const void> lease = batch.lease;
  write_batch(device_, std::move(batch));
  EXPECT_EQ(lease.use_count(), static_cast<long>(kInputs)) << "one for each input";
  device_.read_oldest();
  EXPECT_FALSE(lease.expired());
  device_.read_oldest();
  EXPECT_TRUE(lease.expired());
}

TEST_F(BatchInputTest, ABackendInMainMemoryGivesItBackAtOnce) {
  const auto backend = reference_backend();
  const auto executable = backend->compile(std::make_shared<plan::Plan>(plan::make_plan(options(), *backend)),
                                           backend->make_state());
  data::Batch batch;
  ASSERT_TRUE(loader_->next(batch));
  const std::weak_ptr<const void> lease = batch.lease;
  write_batch(*executable, std::move(batch));
  EXPECT_TRUE(lease.expired());
}

}  // namespace
}  // namespace redline::train
