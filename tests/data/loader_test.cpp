#include "data/loader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <set>
#include <thread>

#include "base/clock.h"
#include "base/error.h"
#include "data/images/decode_memory.h"
#include "data/images/encode.h"
#include "data/memory_source.h"

namespace redline::data {
namespace {

LoaderOptions options(bool train, int threads = 2) {
  LoaderOptions o;
  o.batch_size = 8;
  o.threads = threads;
  o.slots = 3;
  o.seed = 4;
  o.transform.train = train;
  o.transform.size = 16;
  return o;
}

struct Row {
  std::int32_t label;
  std::vector<std::uint8_t> image;
  std::int32_t other = -1;
  float weight = 1;
  bool operator==(const Row&) const = default;
};

std::vector<Row> rest_of_epoch(Loader& loader) {
  std::vector<Row> rows;
  Batch batch;
  while (loader.next(batch)) {
    const std::size_t bytes = 16 * 16 * 3;
    int valid = 0;
    for (std::size_t i = 0; i < 8; ++i) {
      const std::uint8_t* image = batch.images + i * bytes;
      Row& row = rows.emplace_back(Row{batch.labels[i], {image, image + bytes}});
      if (batch.other_labels != nullptr) row.other = batch.other_labels[i];
      if (batch.label_weights != nullptr) row.weight = batch.label_weights[i];
      valid += batch.labels[i] >= 0;
    }
    EXPECT_EQ(batch.count, valid);
  }
  return rows;
}

std::vector<Row> epoch(Loader& loader, std::int64_t number, std::int64_t first = 0) {
  loader.start_epoch(number, first);
  return rest_of_epoch(loader);
}

TEST(Loader, ContentIsTheSameForAnyNumberOfThreads) {
  const auto source = std::make_shared<MemorySource>(50);
  Loader one(source, options(true, 1)), many(source, options(true, 7));
  EXPECT_EQ(one.batches_per_epoch(), 6);
  EXPECT_EQ(one.samples(), 50);
  EXPECT_EQ(one.classes(), 50);
  for (const int number : {0, 1, 5}) {
    const std::vector<Row> rows = epoch(one, number);
    ASSERT_EQ(rows.size(), 48u);
    EXPECT_EQ(epoch(many, number), rows);
  }
}

TEST(Loader, ARowIsItsSampleTransformed) {
  const auto source = std::make_shared<MemorySource>(20);
  Loader loader(source, options(true));
  Transform transform(options(true).transform, {});
  for (const Row& row : epoch(loader, 3)) {
    FileBytes memory;
    std::vector<std::uint8_t> image(16 * 16 * 3);
    transform.run(source->read(row.label, memory), sample_random(4, 3, row.label), image.data());
    EXPECT_EQ(row.image, image);
  }
}

TEST(Loader, GoesOnInTheMiddleOfAnEpoch) {
  const auto source = std::make_shared<MemorySource>(50);
  Loader loader(source, options(true));
  std::vector<Row> rows = epoch(loader, 2);
  const std::vector<Row> tail = epoch(loader, 2, 4);
  rows.erase(rows.begin(), rows.begin() + 4 * 8);
  EXPECT_EQ(tail, rows);
  EXPECT_TRUE(epoch(loader, 2, 6).empty());
}

TEST(Loader, AnotherImageSizeIsAsIfMadeWithIt) {
  const auto source = std::make_shared<MemorySource>(50);
  LoaderOptions larger = options(true);
  larger.transform.size = 24;
  Loader changed(source, larger), made(source, options(true));
  Batch batch;
  changed.start_epoch(0);
  ASSERT_TRUE(changed.next(batch));  // breaks off in the middle
  changed.set_image_size(16);
  EXPECT_EQ(changed.image_size(), 16);
  EXPECT_EQ(epoch(changed, 1, 2), epoch(made, 1, 2));
}

TEST(Loader, RanksShareTheGlobalBatch) {
  const auto source = std::make_shared<MemorySource>(50);
  LoaderOptions global = options(true);
  global.batch_size = 16;
  Loader whole(source, global);
  whole.start_epoch(1);
  std::vector<std::unique_ptr<Loader>> parts;
  for (int rank = 0; rank < 2; ++rank) {
    LoaderOptions o = options(true);
    o.rank = rank;
    o.ranks = 2;
    parts.push_back(std::make_unique<Loader>(source, o));
    parts.back()->start_epoch(1);
  }
  Batch all, part;
  while (whole.next(all))
    for (int rank = 0; rank < 2; ++rank) {
      ASSERT_TRUE(parts[static_cast<std::size_t>(rank)]->next(part));
      EXPECT_TRUE(std::equal(part.labels, part.labels + 8, all.labels + 8 * rank));
      EXPECT_TRUE(std::equal(part.images, part.images + 8 * 768, all.images + 8 * 768 * rank));
    }
  EXPECT_FALSE(parts[1]->next(part));
}

TEST(Loader, MixesBatchesTheSameWayForAnyNumberOfThreads) {
  const auto source = std::make_shared<MemorySource>(50);
  LoaderOptions o = options(true, 1);
  Loader plain(source, o);
  o.mix = {0.2, 1.0};
  Loader one(source, o);
  o.threads = 7;
  Loader many(source, o);
  for (const int number : {0, 3}) {
    const std::vector<Row> before = epoch(plain, number), rows = epoch(one, number);
    EXPECT_EQ(epoch(many, number), rows);
    ASSERT_EQ(rows.size(), before.size());
    std::set<float> weights;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const std::size_t neighbour = i % 8 > 0 ? i - 1 : i + 7;
      EXPECT_EQ(rows[i].label, before[i].label);
      EXPECT_EQ(rows[i].other, before[neighbour].label);
      weights.insert(rows[i].weight);
      if (rows[i].weight == 1) continue;
      EXPECT_NE(rows[i].image, before[i].image);
    }
    EXPECT_GT(weights.size(), 3u);  // of six batches
    EXPECT_EQ(epoch(one, number, 4), std::vector<Row>(rows.begin() + 4 * 8, rows.end()));
  }
}

TEST(Loader, EvaluationIsNeverMixedNorDistorted) {
  const auto source = std::make_shared<MemorySource>(16);
  LoaderOptions o = options(false);
  const std::vector<Row> rows = [&] {
    Loader loader(source, o);
    return epoch(loader, 0);
  }();
  o.mix = {1, 1};
  o.transform.distort.policy = AutoAugment::rand_augment;
  o.transform.distort.erase.probability = 1;
  Loader loader(source, o);
  EXPECT_EQ(epoch(loader, 0), rows);
}

TEST(Loader, EvaluationPadsTheLastBatch) {
  const auto source = std::make_shared<MemorySource>(19);
  Loader loader(source, options(false));
  const std::vector<Row> rows = epoch(loader, 0);
  ASSERT_EQ(rows.size(), 24u);
  for (int i = 0; i < 24; ++i) EXPECT_EQ(rows[static_cast<std::size_t>(i)].label, i < 19 ? i : -1);
  EXPECT_EQ(rows[23].image, std::vector<std::uint8_t>(768, 0));
  EXPECT_EQ(epoch(loader, 1), rows);  // an epoch changes nothing
}

TEST(Loader, SlotsAreUsedAgainAndMemoryIsAligned) {
  const auto source = std::make_shared<MemorySource>(80);
  Loader loader(source, options(true));
  std::set<const std::uint8_t*> memory;
  Batch batch;
  for (int number = 0; number < 3; ++number) {
    loader.start_epoch(number);
    while (loader.next(batch)) {
      memory.insert(batch.images);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(batch.images) % 64, 0u);
    }
  }
  EXPECT_LE(memory.size(), 3u);
}

TEST(Loader, ABatchOnLeaseStaysAsItIs) {
  const auto source = std::make_shared<MemorySource>(80);
  Loader loader(source, options(true));
  loader.start_epoch(0);
  Batch held, batch;
  ASSERT_TRUE(loader.next(held));
  const std::vector<std::uint8_t> images(held.images, held.images + 8 * 768);
  const std::vector<std::int32_t> labels(held.labels, held.labels + 8);
  const auto unchanged = [&] {
    return std::equal(images.begin(), images.end(), held.images) &&
           std::equal(labels.begin(), labels.end(), held.labels);
  };
  while (loader.next(batch)) {
    EXPECT_NE(batch.images, held.images);
    EXPECT_TRUE(unchanged()) << "after batch " << batch.step_in_epoch;
  }
  loader.start_epoch(1);
  while (loader.next(batch)) EXPECT_NE(batch.images, held.images);
  EXPECT_TRUE(unchanged()) << "after another epoch";
  loader.set_image_size(24);
  loader.start_epoch(2);
  while (loader.next(batch)) EXPECT_TRUE(unchanged()) << "after another image size";
}

TEST(Loader, ABatchOutlivesItsLoader) {
  const auto source = std::make_shared<MemorySource>(80);
  Batch held;
  std::vector<std::uint8_t> images;
  {
    Loader loader(source, options(true));
    loader.start_epoch(0);
    ASSERT_TRUE(loader.next(held));
    images.assign(held.images, held.images + 8 * 768);
  }
  EXPECT_TRUE(std::equal(images.begin(), images.end(), held.images));
}

TEST(Loader, WaitsForALeaseToEndWhenEverySlotIsOut) {
  const auto source = std::make_shared<MemorySource>(80);
  Loader loader(source, options(true));
  loader.start_epoch(0);
  std::vector<Batch> held(3);
  for (Batch& batch : held) ASSERT_TRUE(loader.next(batch));
  const std::uint8_t* const freed = held[1].images;
  std::atomic<bool> given_back = false;
  std::thread device([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    given_back = true;
    held[1] = {};
  });
  Batch batch;
  EXPECT_TRUE(loader.next(batch));
  EXPECT_TRUE(given_back);
  EXPECT_EQ(batch.images, freed);
  device.join();
}

TEST(Loader, ReadsNoFurtherAheadThanItsSlots) {
  const auto source = std::make_shared<MemorySource>(800);
  Loader loader(source, options(true, 4));
  Batch batch;
  loader.start_epoch(0);
  ASSERT_TRUE(loader.next(batch));
  for (int i = 0; i < 200 && source->reads < 3 * 8; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(source->reads, 3 * 8);
}

// Waits until a source was read this often, and a little longer, in case it is read more.
int reads_of(const MemorySource& source, int expected) {
  for (int i = 0; i < 400 && source.reads < expected; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  return source.reads;
}

TEST(Loader, GoesOnToTheNextEpochBeforeItBegins) {
  const auto source = std::make_shared<MemorySource>(16);  // two batches an epoch
  Loader loader(source, options(true));
  Batch batch;
  loader.start_epoch(3);
  ASSERT_TRUE(loader.next(batch));
  EXPECT_EQ(reads_of(*source, 24), 24);  // three slots: one is on lease, one has the second batch
  ASSERT_TRUE(loader.next(batch));
  EXPECT_FALSE(loader.next(batch));
  EXPECT_EQ(reads_of(*source, 40), 40);  // all slots, and nobody has asked for epoch 4
  loader.start_epoch(4);
  ASSERT_TRUE(loader.next(batch));
  EXPECT_EQ(batch.epoch, 4);
  EXPECT_EQ(batch.step_in_epoch, 0);
}

TEST(Loader, ReadingAheadOverTheEndOfEpochsKeepsTheOrder) {
  for (const int samples : {8, 17, 50}) {  // one, two and six batches
    const auto source = std::make_shared<MemorySource>(samples);
    Loader loader(source, options(true, 4));
    std::vector<Row> rows, expected;
    for (int number = 0; number < 20; ++number) {
      std::ranges::move(epoch(loader, number), std::back_inserter(rows));
      Loader fresh(source, options(true, 1));
      std::ranges::move(epoch(fresh, number), std::back_inserter(expected));
    }
    EXPECT_EQ(rows, expected) << samples;
  }
}

TEST(Loader, AnEpochThatDoesNotFollowIsAsAsked) {
  const auto source = std::make_shared<MemorySource>(24);
  Loader loader(source, options(true, 4)), fresh(source, options(true, 4));
  epoch(loader, 0);
  EXPECT_EQ(epoch(loader, 7, 1), epoch(fresh, 7, 1));
  EXPECT_EQ(epoch(loader, 7), epoch(fresh, 7));  // the same again
  Batch batch;
  loader.start_epoch(8);
  ASSERT_TRUE(loader.next(batch));
  batch = {};
  EXPECT_EQ(epoch(loader, 9), epoch(fresh, 9));  // not all of epoch 8 was taken
}

TEST(Loader, AnEpochThatBeginsAtItsEndIsFollowedByTheNext) {
  const auto source = std::make_shared<MemorySource>(24);
  Loader loader(source, options(true)), fresh(source, options(true));
  EXPECT_TRUE(epoch(loader, 2, 3).empty());
  EXPECT_EQ(epoch(loader, 3), epoch(fresh, 3));
}

TEST(Loader, AFailureThatWasReadAheadCountsWhenItIsAskedFor) {
  // Seven samples of epoch 0 make no batch, and are read in epoch 1 at the latest.
  const auto source = std::make_shared<MemorySource>(15);
  std::set<std::int32_t> seen;
  {
    Loader fresh(source, options(true));
    for (const Row& row : epoch(fresh, 0)) seen.insert(row.label);
  }
  for (int i = 0; i < 15; ++i)  // none reads any more
    if (!seen.contains(i)) source->damage(i);
  LoaderOptions o = options(true);
  o.max_bad = 0;
  Loader loader(source, o);
  loader.start_epoch(0);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // for the threads to find out
  EXPECT_EQ(rest_of_epoch(loader).size(), 8u);
  const auto go_on = [&] {
    for (int number = 1; number < 20; ++number) epoch(loader, number);
  };
  EXPECT_THROW(go_on(), DataError);
}

TEST(Loader, AnEvaluationIsNotBegunUnasked) {
  const auto source = std::make_shared<MemorySource>(16);
  Loader loader(source, options(false));
  EXPECT_EQ(epoch(loader, 0).size(), 16u);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_EQ(source->reads, 16);
}

TEST(Loader, EndsPromptlyInTheMiddleOfAnEpoch) {
  const auto source = std::make_shared<MemorySource>(800);
  for (int taken = 0; taken < 5; ++taken) {
    Loader loader(source, options(true, 4));
    loader.start_epoch(0);
    Batch batch;
    for (int i = 0; i < taken; ++i) ASSERT_TRUE(loader.next(batch));
    const Stopwatch watch;
    if (taken % 2) loader.start_epoch(1);
    EXPECT_LT(watch.seconds(), 1.0);
  }
}

TEST(Loader, WaitingEndsWhenAskedTo) {
  const auto source = std::make_shared<MemorySource>(8);
  source->read_time = std::chrono::milliseconds(100);
  Loader loader(source, options(true, 1));  // a batch takes 0.8 s
  loader.start_epoch(0);
  int asked = 0;
  EXPECT_FALSE(loader.wait([&] { return ++asked == 3; }));
  EXPECT_EQ(asked, 3);
  EXPECT_TRUE(loader.wait([] { return false; }));
  Batch batch;
  EXPECT_TRUE(loader.next(batch));
  EXPECT_TRUE(loader.wait([] { return true; }));  // at the end of the epoch there is nothing to wait for
  EXPECT_FALSE(loader.next(batch));
}

TEST(Loader, EndsWhileItsThreadsWaitForMemory) {
  const auto source = std::make_shared<MemorySource>(8);
  const Picture large = gradient(2200, 2200);
  const std::vector<std::uint8_t> png = encode_png(large.rgb.data(), 2200, 2200);
  for (int i = 0; i < 8; ++i) source->replace(i, png);
  const MemoryLease all(MemoryFor::decoding, memory_limit(MemoryFor::decoding));
  Loader loader(source, options(true, 4));
  loader.start_epoch(0);
  EXPECT_FALSE(loader.wait([] { return true; }));
  loader.set_image_size(24);  // waits for the threads, as the end does
}

TEST(Loader, ABadSampleIsReplacedTheSameWayEachTime) {
  const auto source = std::make_shared<MemorySource>(50);
  source->damage(7);
  LoaderOptions o = options(true, 1);
  o.max_bad = 0.02;
  Loader one(source, o);
  o.threads = 5;
  Loader many(source, o);
  for (int number = 0; number < 4; ++number) {
    const std::vector<Row> rows = epoch(one, number);
    EXPECT_EQ(epoch(many, number), rows);
    for (const Row& row : rows) {
      EXPECT_NE(row.label, 7);
      EXPECT_NE(row.label, -1);
    }
  }
  const std::vector<BadSample> bad = one.bad_samples();
  ASSERT_EQ(bad.size(), 1u);
  EXPECT_EQ(bad[0].name, "sample 7");
  EXPECT_FALSE(bad[0].reason.empty());
}

TEST(Loader, ABadSampleIsLeftOutOfEvaluation) {
  const auto source = std::make_shared<MemorySource>(50);
  source->damage(7);
  LoaderOptions o = options(false);
  o.max_bad = 0.02;
  Loader loader(source, o);
  const std::vector<Row> rows = epoch(loader, 0);
  EXPECT_EQ(rows[7].label, -1);
  EXPECT_EQ(rows[8].label, 8);
}

TEST(Loader, MoreBadSamplesThanAllowedStopTheRun) {
  const auto source = std::make_shared<MemorySource>(50);
  for (const int sample : {7, 9, 11, 13}) source->damage(sample);
  LoaderOptions o = options(false);
  o.max_bad = 0.02;  // one image; but three of 50 may always be bad
  Loader loader(source, o);
  const std::string message = message_of<DataError>([&] { epoch(loader, 0); });
  EXPECT_NE(message.find("4 of 50 samples are bad, more than the 3 that"), std::string::npos) << message;
  EXPECT_THROW(epoch(loader, 1), DataError);  // and stays that way, without hanging
}

TEST(Loader, TheWaitForDataIsMeasured) {
  const auto source = std::make_shared<MemorySource>(50);
  Loader loader(source, options(true, 1));
  EXPECT_EQ(loader.waited_seconds(), 0);
  epoch(loader, 0);
  EXPECT_GT(loader.waited_seconds(), 0);
}

TEST(Loader, TellsHowMuchOfTheWorkIsReading) {
  for (const int milliseconds : {0, 10}) {
    const auto source = std::make_shared<MemorySource>(50);
    source->read_time = std::chrono::milliseconds(milliseconds);
    Loader loader(source, options(true));
    epoch(loader, 0);
    ASSERT_TRUE(loader.reading_share());
    EXPECT_LT(*loader.reading_share(), milliseconds == 0 ? 0.5 : 1.0);
    EXPECT_GT(*loader.reading_share(), milliseconds == 0 ? 0.0 : 0.5);
  }
}

TEST(Loader, ImpossibleOptionsAreUsageErrors) {
  const auto source = std::make_shared<MemorySource>(10);
  const auto with = [&](auto change) {
    LoaderOptions o = options(true);
    change(o);
    Loader loader(source, o);
  };
  EXPECT_THROW(with([](auto& o) { o.batch_size = 0; }), UsageError);
  EXPECT_THROW(with([](auto& o) { o.batch_size = 11; }), UsageError);
  EXPECT_THROW(with([](auto& o) { o.threads = 0; }), UsageError);
  EXPECT_THROW(with([](auto& o) { o.max_bad = -1; }), UsageError);
  EXPECT_THROW(with([](auto& o) { o.transform.size = -3; }), UsageError);
}

}  // namespace
}  // namespace redline::data
