// The path of images that a GPU decodes, with a decoder in main memory standing in for the GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>

#include <fmt/format.h>

#include "backend/cuda/kernels/crop.h"
#include "base/error.h"
#include "base/random.h"
#include "data/decode_split.h"
#include "data/gpu_batch.h"
#include "data/loader.h"
#include "data/memory_source.h"

namespace redline::data {
namespace {

using backend::cuda::CropJob;

void crop_all(const CropJob& job, int size, Interpolation filter) {
  for (int y = 0; y < size; ++y)
    for (int x = 0; x < size; ++x)
      filter == Interpolation::bilinear ? backend::cuda::crop_pixel<Interpolation::bilinear>(job, size, x, y)
                                        : backend::cuda::crop_pixel<Interpolation::bicubic>(job, size, x, y);
}

class FakeImages final : public backend::DeviceImages {
 public:
  FakeImages(int rows, int size) : rows_(rows), size_(size) {
    pixels.resize(static_cast<std::size_t>(rows) * row_bytes());
  }
  int rows() const override { return rows_; }
  int size() const override { return size_; }
  void read(int row, std::span<std::uint8_t> to) const override {
    std::copy_n(pixels.data() + static_cast<std::size_t>(row) * row_bytes(), row_bytes(), to.data());
  }
  std::size_t row_bytes() const { return static_cast<std::size_t>(size_ * size_ * 3); }

  std::vector<std::uint8_t> pixels;

 private:
  int rows_, size_;
};

// Decodes as the GPU's kernel crops; takes, fails and is slow as a test wants.
class FakeDecoder final : public backend::ImageDecoder {
 public:
  std::function<bool(std::size_t bytes)> refuses = [](std::size_t) { return false; };
  std::function<bool(std::size_t bytes)> fails = refuses;
  std::function<void()> before_fill = [] {};
  std::atomic<int> decoded{0};

  std::string description() const override { return "a fake"; }
  bool takes(std::span<const std::uint8_t> bytes, int, int) override { return !refuses(bytes.size()); }
  std::unique_ptr<backend::DeviceImages> make_images(int rows, int size) override {
    return std::make_unique<FakeImages>(rows, size);
  }
  std::vector<int> fill(backend::DeviceImages& images, std::span<const backend::EncodedImage> encoded,
                        std::span<const backend::HostImage> host, Interpolation filter) override {
    before_fill();
    auto& to = dynamic_cast<FakeImages&>(images);
    const auto row = [&](int index) {
      return to.pixels.data() + static_cast<std::size_t>(index) * to.row_bytes();
    };
    for (const backend::HostImage& image : host) std::copy_n(image.pixels, to.row_bytes(), row(image.row));
    std::vector<int> failed;
    for (const backend::EncodedImage& image : encoded) {
      if (fails(image.bytes.size())) {
        failed.push_back(image.row);
        continue;
      }
      decoder_.open(image.bytes);
      Picture picture = copy_of(decoder_.decode());
      const backend::ImageView& v = image.view;
      const CropJob job{picture.rgb.data(), picture.width,           picture.height,           float(v.x),
                        float(v.y),         float(v.width),          float(v.height),          v.clip_x,
                        v.clip_y,           v.clip_x + v.clip_width, v.clip_y + v.clip_height, v.flip,
                        row(image.row)};
      crop_all(job, to.size(),
               filter == Interpolation::bilinear ? Interpolation::bilinear : Interpolation::bicubic);
      ++decoded;
    }
    return failed;
  }
  std::size_t memory() const override { return 0; }
  std::size_t memory_need(int, int, int, double) const override { return 0; }

 private:
  Decoder decoder_;
};

TEST(GpuCrop, IsTheCpusResizer) {
  const Picture picture = decoded(bytes_of(golden("source.png")));
  Picture copy = picture;
  Resizer resizer;
  Random random(7);
  for (int i = 0; i < 200; ++i) {
    const int size = 1 + static_cast<int>(random.below(40));
    const int w = 1 + static_cast<int>(random.below(static_cast<std::uint64_t>(picture.width)));
    const int h = 1 + static_cast<int>(random.below(static_cast<std::uint64_t>(picture.height)));
    const int x = static_cast<int>(random.below(static_cast<std::uint64_t>(picture.width - w + 1)));
    const int y = static_cast<int>(random.below(static_cast<std::uint64_t>(picture.height - h + 1)));
    const bool flip = i % 2 == 0, bicubic = i % 3 == 0, whole = i % 5 == 0;
    // A crop as training draws it, or a box with fractions in the whole image as evaluation does.
    const double shift = whole ? 0.3 : 0;
    const Box box{x + shift * w / 2, y + shift * h / 2, w * (1 - shift), h * (1 - shift)};
    const Rect clip = whole ? Rect{0, 0, picture.width, picture.height} : Rect{x, y, w, h};
    const auto bytes = static_cast<std::size_t>(size * size * 3);
    std::vector<std::uint8_t> expected(bytes), found(bytes);
    resizer.resize(view_of(picture), box, clip, size, size,
                   bicubic ? Interpolation::bicubic : Interpolation::bilinear, flip, expected.data());
    const CropJob job{copy.rgb.data(), copy.width,          copy.height,          float(box.x),
                      float(box.y),    float(box.width),    float(box.height),    clip.x,
                      clip.y,          clip.x + clip.width, clip.y + clip.height, flip,
                      found.data()};
    crop_all(job, size, bicubic ? Interpolation::bicubic : Interpolation::bilinear);
    // The resizer rounds its weights to 1/16384 and rows to 1/64; two roundings to a byte may then differ.
    const Difference difference = compare(expected, found);
    EXPECT_LE(difference.most, 1) << w << "x" << h << " to " << size;
    EXPECT_LT(difference.mean, 0.05);
  }
}

TEST(GpuScreen, KnowsWhatHardwareTakes) {
  Decoder decoder;
  const auto plain = [&](std::vector<std::uint8_t> bytes) {
    decoder.open(bytes);
    return decoder.plain_jpeg();
  };
  for (const char* name : {"420.jpg", "422.jpg", "444.jpg", "grey.jpg"})
    EXPECT_TRUE(plain(bytes_of(golden(name)))) << name;
  for (const char* name : {"progressive.jpg", "cmyk.jpg", "source.png"})
    EXPECT_FALSE(plain(bytes_of(golden(name)))) << name;
  std::vector<std::uint8_t> cut = bytes_of(golden("420.jpg"));
  cut.resize(cut.size() - 2);
  EXPECT_FALSE(plain(cut));
}

TEST(GpuScreen, ChoosesWhatTheTransformShows) {
  TransformOptions options;
  options.size = 16;
  Transform transform(options, {});
  const std::vector<std::uint8_t> bytes = gradient_jpeg(50, 40);
  const auto screened = transform.screen(bytes, sample_random(1, 2, 3));
  ASSERT_TRUE(screened);
  Random random = sample_random(1, 2, 3);
  const Crop crop = random_crop(options, 50, 40, random);
  EXPECT_EQ(screened->width, 50);
  EXPECT_EQ(screened->height, 40);
  EXPECT_EQ(screened->view.box.x, crop.region.x);
  EXPECT_EQ(screened->view.clip.width, crop.region.width);
  EXPECT_EQ(screened->view.flip, crop.flip);
}

LoaderOptions options(bool train, std::shared_ptr<backend::ImageDecoder> decoder = nullptr) {
  LoaderOptions o;
  o.batch_size = 8;
  o.threads = 3;
  o.slots = 3;
  o.seed = 4;
  o.transform.train = train;
  o.transform.size = 16;
  o.transform.shortcuts = false;  // the GPU takes none
  o.decoder = std::move(decoder);
  o.fixed_split = true;
  return o;
}

struct Row {
  std::int32_t label;
  std::vector<std::uint8_t> image;
};

std::vector<Row> epoch(Loader& loader, std::int64_t number, std::int64_t first = 0) {
  std::vector<Row> rows;
  loader.start_epoch(number, first);
  for (Batch batch; loader.next(batch);) {
    for (int i = 0; i < 8; ++i) {
      const std::size_t bytes = 16 * 16 * 3;
      Row row{batch.labels[i], std::vector<std::uint8_t>(bytes)};
      if (batch.device_images)
        batch.device_images->read(i, row.image);
      else
        std::copy_n(batch.images + static_cast<std::size_t>(i) * bytes, bytes, row.image.data());
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

// Labels are the same, and images up to `tolerance` levels.
void expect_same(const std::vector<Row>& found, const std::vector<Row>& expected, int tolerance) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i].label, expected[i].label) << i;
    EXPECT_LE(compare(found[i].image, expected[i].image).most, tolerance) << i;
  }
}

TEST(GpuLoader, ShowsTheSamplesAndCropsOfTheCpu) {
  const auto source = std::make_shared<MemorySource>(50);
  for (const bool train : {true, false}) {
    const auto decoder = std::make_shared<FakeDecoder>();
    Loader gpu(source, options(train, decoder)), cpu(source, options(train));
    expect_same(epoch(gpu, 1), epoch(cpu, 1), 1);
    if (train)
      EXPECT_GE(decoder->decoded, 48);  // and of the next epoch, as far as the slots go
    else
      EXPECT_EQ(decoder->decoded, 50);
  }
}

TEST(GpuLoader, RefusesAugmentationBeyondTheCrop) {
  const auto source = std::make_shared<MemorySource>(16);
  LoaderOptions mixed = options(true, std::make_shared<FakeDecoder>()), distorted = mixed;
  mixed.mix.mixup_alpha = 1;
  distorted.transform.distort.jitter.brightness = 0.5;
  EXPECT_THROW(Loader(source, mixed), InternalError);
  EXPECT_THROW(Loader(source, distorted), InternalError);
}

TEST(GpuLoader, LeavesOtherFilesToTheThreads) {
  const auto source = std::make_shared<MemorySource>(16);
  int i = 0;
  for (const char* name : {"progressive.jpg", "cmyk.jpg", "source.png", "palette.png"})
    source->replace(i++, bytes_of(golden(name)));
  const std::size_t refused = source->bytes(5).size();
  const auto decoder = std::make_shared<FakeDecoder>();
  decoder->refuses = [=](std::size_t bytes) { return bytes == refused; };
  Loader gpu(source, options(false, decoder)), cpu(source, options(false));
  const std::vector<Row> found = epoch(gpu, 0), expected = epoch(cpu, 0);
  expect_same(found, expected, 1);
  for (const std::size_t at : {0, 1, 2, 3, 5}) EXPECT_EQ(found[at].image, expected[at].image) << at;
  EXPECT_EQ(decoder->decoded, 11);
}

TEST(GpuLoader, AFileTooLargeForItsMemoryGoesToTheThreads) {
  const auto source = std::make_shared<MemorySource>(8);
  std::vector<std::uint8_t> large = gradient_jpeg(30, 30);
  large.resize(GpuBatch::kMostBytes + 1);  // bytes after the end are no damage
  source->replace(2, large);
  const auto decoder = std::make_shared<FakeDecoder>();
  Loader gpu(source, options(false, decoder)), cpu(source, options(false));
  EXPECT_EQ(epoch(gpu, 0)[2].image, epoch(cpu, 0)[2].image);
  EXPECT_EQ(decoder->decoded, 7);
}

TEST(GpuLoader, WhatTheGpuFailsAtTheCpuDecodes) {
  const auto source = std::make_shared<MemorySource>(24);
  const std::size_t failing = source->bytes(7).size();
  const auto decoder = std::make_shared<FakeDecoder>();
  decoder->fails = [=](std::size_t bytes) { return bytes == failing; };
  Loader gpu(source, options(false, decoder)), cpu(source, options(false));
  const std::vector<Row> found = epoch(gpu, 0), expected = epoch(cpu, 0);
  expect_same(found, expected, 1);
  EXPECT_EQ(found[7].image, expected[7].image);
  EXPECT_LT(decoder->decoded, 24);
  EXPECT_TRUE(gpu.bad_samples().empty());
}

TEST(GpuLoader, DamagedFilesAreNamedAndReplacedAsOnTheCpu) {
  const auto source = std::make_shared<MemorySource>(40);
  source->damage(3);
  source->damage(11);
  LoaderOptions with = options(true, std::make_shared<FakeDecoder>()), without = options(true);
  with.max_bad = without.max_bad = 0.5;
  Loader gpu(source, with), cpu(source, without);
  expect_same(epoch(gpu, 0), epoch(cpu, 0), 1);
  ASSERT_EQ(gpu.bad_samples().size(), 2u);
  EXPECT_EQ(gpu.bad_samples()[0].name, "sample 3");
  EXPECT_EQ(gpu.bad_samples()[0].reason, cpu.bad_samples()[0].reason);
}

TEST(GpuLoader, AGpuThatFailsOftenIsNotAskedAgain) {
  const auto source = std::make_shared<MemorySource>(400);
  const auto decoder = std::make_shared<FakeDecoder>();
  std::atomic<int> asked{0};
  decoder->fails = [&](std::size_t) { return ++asked > 0; };
  Loader gpu(source, options(true, decoder)), cpu(source, options(true));
  expect_same(epoch(gpu, 0), epoch(cpu, 0), 0);
  // The trial, and what the slots held when it ended.
  EXPECT_LE(asked, 64 + 4 * 8);
}

TEST(GpuLoader, StartsAnEpochAnewWhileTheGpuWorks) {
  const auto source = std::make_shared<MemorySource>(50);
  const auto decoder = std::make_shared<FakeDecoder>();
  decoder->before_fill = [] { std::this_thread::sleep_for(std::chrono::milliseconds(2)); };
  Loader gpu(source, options(true, decoder)), cpu(source, options(true));
  for (int i = 0; i < 10; ++i) {
    gpu.start_epoch(0);
    Batch batch;
    for (int k = 0; k < i % 4; ++k) ASSERT_TRUE(gpu.next(batch));
  }
  expect_same(epoch(gpu, 5, 2), epoch(cpu, 5, 2), 1);
}

TEST(GpuLoader, ChangesTheImageSizeWhileTheGpuWorks) {
  const auto source = std::make_shared<MemorySource>(50);
  const auto decoder = std::make_shared<FakeDecoder>();
  decoder->before_fill = [] { std::this_thread::sleep_for(std::chrono::milliseconds(2)); };
  LoaderOptions larger = options(true, decoder);
  larger.transform.size = 24;
  Loader gpu(source, larger), cpu(source, options(true));
  for (const int size : {24, 20, 16}) {
    gpu.set_image_size(size);
    gpu.start_epoch(0);
    Batch batch;
    ASSERT_TRUE(gpu.next(batch));
    EXPECT_EQ(batch.device_images->size(), size);
  }
  expect_same(epoch(gpu, 5, 2), epoch(cpu, 5, 2), 1);
}

TEST(GpuLoader, AFailureOfTheGpuEndsTheRun) {
  const auto source = std::make_shared<MemorySource>(50);
  const auto decoder = std::make_shared<FakeDecoder>();
  decoder->before_fill = [] { throw UnavailableError("the GPU fell off"); };
  Loader gpu(source, options(true, decoder));
  gpu.start_epoch(0);
  Batch batch;
  EXPECT_EQ(message_of<UnavailableError>([&] { gpu.next(batch); }), "the GPU fell off");
}

TEST(GpuLoader, ASlowGpuIsRelieved) {
  const auto source = std::make_shared<MemorySource>(200);
  const auto decoder = std::make_shared<FakeDecoder>();
  decoder->before_fill = [] { std::this_thread::sleep_for(std::chrono::milliseconds(3)); };
  LoaderOptions adaptive = options(true, decoder);
  adaptive.fixed_split = false;
  Loader gpu(source, adaptive), cpu(source, options(true));
  expect_same(epoch(gpu, 0), epoch(cpu, 0), 1);
  EXPECT_GT(gpu.cpu_share(), 0);
  EXPECT_LT(decoder->decoded, 200);
}

// A machine whose GPU and threads take given seconds a row. What the GPU decodes slows the step down, and so
// do busy threads, each by some of the time that they take.
struct Machine {
  double gpu, screen, cpu, step;
  double gpu_burden = 0, cpu_burden = 0;
  int threads = 4;

  double period(double gpu_rows, double cpu_rows) const {
    const double step_seconds = 256 * step + gpu_burden * gpu_rows * gpu +
                                cpu_burden * (gpu_rows * screen + cpu_rows * cpu) / threads;
    return std::max({gpu_rows * gpu, (gpu_rows * screen + cpu_rows * cpu) / threads, step_seconds});
  }
  double gpu_alone() const { return period(256, 0); }
  double cpu_alone() const { return period(0, 256); }
};

struct Outcome {
  double share, period, whole;  // at the end, and the mean over all batches
};

// `jitter` times the period is added or taken away at random; every hundredth batch comes after an
// evaluation.
Outcome settled(const Machine& machine, double jitter = 0, int batches = 4000) {
  DecodeSplit split(machine.threads, false);
  Random random(7, 1);
  std::deque<DecodeCost> ring;  // batches that were begun with an earlier share
  double whole = 0;
  for (int batch = 0; batch < batches; ++batch) {
    DecodeCost& cost = ring.emplace_back();
    for (int row = 0; row < 256; ++row) ++(split.cpu_row(row) ? cost.cpu_rows : cost.gpu_rows);
    cost.gpu_seconds = cost.gpu_rows * machine.gpu;
    cost.screen_seconds = cost.gpu_rows * machine.screen;
    cost.cpu_seconds = cost.cpu_rows * machine.cpu;
    if (ring.size() < 4) continue;
    const DecodeCost now = ring.front();
    ring.pop_front();
    double period = machine.period(now.gpu_rows, now.cpu_rows);
    whole += period;
    period *= 1 + jitter * (2 * random.uniform() - 1);
    split.observe(now, batch % 100 == 0 ? period + 3 : period);
  }
  const double share = split.cpu_share();
  return {share, machine.period((1 - share) * 256, share * 256), whole / (batches - 3)};
}

TEST(DecodeSplit, LeavesEverythingToAGpuThatKeepsUp) {
  EXPECT_EQ(settled({40e-6, 100e-6, 2e-3, 80e-6}).share, 0);
}

TEST(DecodeSplit, BalancesWhereTheStepOutrunsBoth) {
  // (1 - s) · 200 µs = (s · 1 ms + (1 - s) · 100 µs) / 4
  EXPECT_NEAR(settled({200e-6, 100e-6, 1e-3, 10e-6}).share, 0.412, 0.03);
}

TEST(DecodeSplit, DoesNotBurdenThreadsThatAreSlowAtReading) {
  EXPECT_EQ(settled({50e-6, 1e-3, 2e-3, 10e-6}).share, 0);
}

// Nobody waits for data here, and yet the threads are the better side.
TEST(DecodeSplit, LeavesAGpuThatIsSlowedDownByDecoding) {
  const Machine machine{60e-6, 100e-6, 300e-6, 80e-6, 0.2, 0};
  ASSERT_GT(machine.gpu_alone(), 1.1 * machine.cpu_alone());
  EXPECT_EQ(settled(machine).share, 1);
}

TEST(DecodeSplit, IsNeverSlowerThanTheBetterSide) {
  for (const double gpu : {20e-6, 60e-6, 200e-6})
    for (const double cpu : {100e-6, 300e-6, 1e-3, 4e-3})
      for (const double step : {10e-6, 70e-6, 300e-6})
        for (const double gpu_burden : {0.0, 0.3})
          for (const double cpu_burden : {0.0, 0.3}) {
            const Machine machine{gpu, 40e-6, cpu, step, gpu_burden, cpu_burden};
            const double better = std::min(machine.gpu_alone(), machine.cpu_alone());
            const Outcome outcome = settled(machine, 0.05);
            const std::string where = fmt::format("gpu {} cpu {} step {} burdens {} {}: share {}", gpu, cpu,
                                                  step, gpu_burden, cpu_burden, outcome.share);
            EXPECT_LT(outcome.period, 1.02 * better) << where;
            // Trying the others costs little, even where one of them is far slower.
            EXPECT_LT(outcome.whole, 1.05 * better) << where;
          }
}

TEST(DecodeSplit, FollowsAStepThatChanges) {
  // Larger images: the step takes longer, and the GPU is enough.
  Machine machine{100e-6, 40e-6, 200e-6, 10e-6};
  DecodeSplit split(4, false);
  double early = 0;
  for (int batch = 0; batch < 6000; ++batch) {
    if (batch == 2000) {
      early = split.cpu_share();
      machine.step = 300e-6;
      machine.cpu_burden = 1;  // which the threads hold up
    }
    DecodeCost cost;
    for (int row = 0; row < 256; ++row) ++(split.cpu_row(row) ? cost.cpu_rows : cost.gpu_rows);
    cost.gpu_seconds = cost.gpu_rows * machine.gpu;
    cost.screen_seconds = cost.gpu_rows * machine.screen;
    cost.cpu_seconds = cost.cpu_rows * machine.cpu;
    split.observe(cost, machine.period(cost.gpu_rows, cost.cpu_rows));
  }
  EXPECT_GT(early, 0.3);
  EXPECT_EQ(split.cpu_share(), 0);
}

TEST(DecodeSplit, FixedNeverChanges) {
  DecodeSplit split(4, true);
  for (int i = 0; i < 100; ++i) split.observe({256, 1.0, 0.1, 0, 0}, 1.0);
  EXPECT_EQ(split.cpu_share(), 0);
  EXPECT_FALSE(split.cpu_row(255));
}

}  // namespace
}  // namespace redline::data
