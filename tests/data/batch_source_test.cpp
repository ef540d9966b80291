#include "data/batch_source.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/error.h"

namespace redline::data {
namespace {

SyntheticOptions small() {
  SyntheticOptions options;
  options.batch_size = 5;
  options.image_size = 9;
  options.classes = 7;
  options.batches_per_epoch = 6;
  return options;
}

TEST(SyntheticBatches, GivesAnEpochOfValidBatches) {
  SyntheticBatches source(small());
  EXPECT_EQ(source.samples(), 30);
  source.start_epoch(2);
  Batch batch;
  std::int64_t steps = 0;
  std::set<const std::uint8_t*> memory;
  while (source.next(batch)) {
    EXPECT_EQ(batch.step_in_epoch, steps++);
    EXPECT_EQ(batch.epoch, 2);
    EXPECT_EQ(batch.count, 5);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(batch.images) % 64, 0u);
    for (int i = 0; i < 5; ++i) EXPECT_TRUE(batch.labels[i] >= 0 && batch.labels[i] < 7);
    const std::set<std::uint8_t> values(batch.images, batch.images + 5 * 9 * 9 * 3);
    EXPECT_GT(values.size(), 200u);
    memory.insert(batch.images);
  }
  EXPECT_EQ(steps, 6);
  EXPECT_EQ(memory.size(), 4u);
}

TEST(SyntheticBatches, StartsInTheMiddle) {
  SyntheticBatches source(small());
  source.start_epoch(0, 4);
  Batch batch;
  ASSERT_TRUE(source.next(batch));
  EXPECT_EQ(batch.step_in_epoch, 4);
  ASSERT_TRUE(source.next(batch));
  EXPECT_FALSE(source.next(batch));
}

TEST(SyntheticBatches, TheSeedDecidesTheContent) {
  SyntheticOptions other = small();
  other.seed = 1;
  SyntheticBatches a(small()), b(small()), c(other);
  Batch x, y, z;
  for (SyntheticBatches* source : {&a, &b, &c}) source->start_epoch(0);
  a.next(x);
  b.next(y);
  c.next(z);
  EXPECT_TRUE(std::equal(x.images, x.images + 5 * 9 * 9 * 3, y.images));
  EXPECT_FALSE(std::equal(x.images, x.images + 5 * 9 * 9 * 3, z.images));
}

TEST(HostMemory, UsesTheGivenAllocatorForAllOfIt) {
  int live = 0;
  SyntheticOptions options = small();
  options.allocator.allocate = [&](std::size_t bytes) {
    ++live;
    return std::aligned_alloc(64, (bytes + 63) / 64 * 64);
  };
  options.allocator.release = [&](void* memory, std::size_t) {
    --live;
    std::free(memory);
  };
  {
    const SyntheticBatches source(options);
    EXPECT_EQ(live, 4);
  }
  EXPECT_EQ(live, 0);
}

TEST(HostMemory, RunningOutIsSaidPlainly) {
  HostAllocator allocator;
  allocator.allocate = [](std::size_t) -> void* { throw std::bad_alloc(); };
  EXPECT_THROW(HostBuffer(1000, allocator), UnavailableError);
}

}  // namespace
}  // namespace redline::data
