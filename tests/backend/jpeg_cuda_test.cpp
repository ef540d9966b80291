// JPEGs decoded by a GPU, compared with the same decoded by the CPU: needs a GPU with decoding engines.
#include <gtest/gtest.h>

#include <memory>
#include <numeric>

#include "backend/backend.h"
#include "base/error.h"
#include "data/gpu_batch.h"
#include "data/images/augment.h"
#include "data/jpeg_writer.h"
#include "data/loader.h"
#include "data/memory_source.h"

namespace redline::backend {
namespace {

using data::JpegKind;

// Levels, on average over an image. Two decoders differ by the rounding of their transforms, and by how they
// give chroma its full resolution: the steeper the colours, as in a small gradient, the more.
double tolerance(int width, int height) { return 1.5 + 128.0 / std::min(width, height); }

constexpr JpegKind kPlain[] = {
    {"420"},       {"422", 2, 1},        {"444", 1, 1},
    {"440", 1, 2}, {"grey", 1, 1, true}, {"420 with restarts", 2, 2, false, false, false, 1}};

class JpegCuda : public testing::Test {
 protected:
  void SetUp() override {
    try {
      DeviceOptions options;
      options.device = "cuda";
      backend_ = make_backend(options);
      decoder_ = backend_->make_image_decoder();
    } catch (const UnavailableError& why) {
      GTEST_SKIP() << why.what();
    }
  }

  static data::TransformOptions transform(bool train, int size, Interpolation filter) {
    data::TransformOptions o;
    o.train = train;
    o.size = size;
    o.filter = filter;
    o.shortcuts = false;  // the GPU takes none
    return o;
  }

  // What the CPU makes of a file.
  static std::vector<std::uint8_t> expected(const std::vector<std::uint8_t>& bytes,
                                            const data::TransformOptions& options, std::int64_t sample) {
    data::Transform transform(options, {});
    std::vector<std::uint8_t> image(static_cast<std::size_t>(options.size * options.size * 3));
    transform.run(bytes, data::sample_random(1, 0, sample), image.data());
    return image;
  }

  std::vector<std::uint8_t> row(const DeviceImages& images, int index) const {
    std::vector<std::uint8_t> pixels(static_cast<std::size_t>(images.size() * images.size() * 3));
    images.read(index, pixels);
    return pixels;
  }

  std::unique_ptr<Backend> backend_;
  std::shared_ptr<ImageDecoder> decoder_;
};

TEST_F(JpegCuda, ShowsWhatTheCpuShows) {
  std::vector<std::vector<std::uint8_t>> files;
  std::vector<std::string> names;
  std::vector<double> tolerances;
  for (const JpegKind& kind : kPlain) {
    for (const auto& [w, h] : {std::pair{500, 375}, {333, 501}, {64, 64}, {17, 9}, {640, 31}}) {
      files.push_back(data::write_jpeg(data::gradient(w, h), kind));
      names.push_back(fmt::format("{} {}x{}", kind.name, w, h));
      tolerances.push_back(tolerance(w, h));
    }
  }
  const int rows = static_cast<int>(files.size());
  for (const bool train : {true, false}) {
    for (const Interpolation filter : {Interpolation::bilinear, Interpolation::bicubic}) {
      const data::TransformOptions options = transform(train, 96, filter);
      data::Transform cpu(options, {});
      data::GpuBatch batch(decoder_, rows, options.size, filter);
      const data::BatchMemory host(rows, options.size, {});
      int added = 0;
      for (int i = 0; i < rows; ++i) {
        const auto& file = files[static_cast<std::size_t>(i)];
        const auto screened = cpu.screen(file, data::sample_random(1, 0, i));
        ASSERT_TRUE(screened) << names[static_cast<std::size_t>(i)];
        if (batch.add(i, file, *screened))
          ++added;
        else
          std::cout << "not taken by the GPU: " << names[static_cast<std::size_t>(i)] << "\n";
      }
      EXPECT_GE(added, rows * 2 / 3);
      EXPECT_EQ(batch.decode(host), std::vector<int>{});
      for (int i = 0; i < rows; ++i) {
        if (!decoder_->takes(files[static_cast<std::size_t>(i)], 1, 1)) continue;
        const data::Difference difference =
            data::compare(row(batch.images(), i), expected(files[static_cast<std::size_t>(i)], options, i));
        EXPECT_LT(difference.mean, tolerances[static_cast<std::size_t>(i)])
            << names[static_cast<std::size_t>(i)] << " train " << train;
      }
    }
  }
}

TEST_F(JpegCuda, RefusesWhatItsEnginesCannot) {
  const data::Picture picture = data::gradient(200, 150);
  EXPECT_TRUE(decoder_->takes(data::write_jpeg(picture, {"420"}), 200, 150));
  EXPECT_FALSE(
      decoder_->takes(data::write_jpeg(picture, {"progressive", 2, 2, false, false, true}), 200, 150));
  EXPECT_FALSE(decoder_->takes(data::write_jpeg(picture, {"420"}), 1 << 15, 1 << 15));
}

// The rows of a batch of 420 files, some of them spoilt.
class JpegCudaDamage : public JpegCuda {
 protected:
  static constexpr int kRows = 32, kSize = 64;

  void check_batch(const std::vector<int>& spoilt,
                   const std::function<void(std::vector<std::uint8_t>&)>& spoil) {
    const data::TransformOptions options = transform(true, kSize, Interpolation::bilinear);
    data::Transform cpu(options, {});
    std::vector<std::vector<std::uint8_t>> files;
    std::vector<EncodedImage> jobs;
    for (int i = 0; i < kRows; ++i) {
      files.push_back(data::write_jpeg(data::gradient(120 + i, 90 + i), {"420"}));
      const auto screened = cpu.screen(files.back(), data::sample_random(1, 0, i));
      ASSERT_TRUE(screened);
      const data::View& v = screened->view;
      jobs.push_back({i,
                      {},
                      screened->width,
                      screened->height,
                      {v.box.x, v.box.y, v.box.width, v.box.height, v.clip.x, v.clip.y, v.clip.width,
                       v.clip.height, v.flip}});
    }
    const std::vector<std::vector<std::uint8_t>> whole = files;
    for (const int i : spoilt) spoil(files[static_cast<std::size_t>(i)]);
    for (int i = 0; i < kRows; ++i)
      jobs[static_cast<std::size_t>(i)].bytes = files[static_cast<std::size_t>(i)];
    const auto images = decoder_->make_images(kRows, kSize);
    const std::vector<int> failed = decoder_->fill(*images, jobs, {}, Interpolation::bilinear);
    for (const int row : failed)
      EXPECT_NE(std::find(spoilt.begin(), spoilt.end(), row), spoilt.end()) << "row " << row;
    for (int i = 0; i < kRows; ++i) {
      if (std::find(spoilt.begin(), spoilt.end(), i) != spoilt.end()) continue;
      EXPECT_LT(data::compare(row(*images, i), expected(whole[static_cast<std::size_t>(i)], options, i)).mean,
                tolerance(120, 90))
          << "row " << i;
    }
    std::cout << failed.size() << " of " << spoilt.size() << " spoilt files were refused by the GPU\n";
  }
};

TEST_F(JpegCudaDamage, OfNoneSpoilsNone) {
  check_batch({}, [](auto&) {});
}

TEST_F(JpegCudaDamage, OfHeadersSpoilsNoOtherRow) {
  check_batch({3, 17, 31}, [](std::vector<std::uint8_t>& file) { std::fill_n(file.begin() + 2, 100, 0x55); });
}

TEST_F(JpegCudaDamage, OfDataSpoilsNoOtherRow) {
  check_batch({0, 9, 10, 30}, [](std::vector<std::uint8_t>& file) {
    for (std::size_t at = file.size() / 2; at < file.size() - 2; at += 7) file[at] ^= 0x5a;
  });
}

TEST_F(JpegCudaDamage, ByCuttingSpoilsNoOtherRow) {
  check_batch({5, 6, 20}, [](std::vector<std::uint8_t>& file) { file.resize(file.size() / 2); });
}

TEST_F(JpegCuda, LargeImagesAreDecodedInParts) {
  const data::TransformOptions options = transform(false, 64, Interpolation::bilinear);
  const std::vector<std::uint8_t> file = data::write_jpeg(data::gradient(4000, 3000, 0.01), {"420"}, 50);
  ASSERT_TRUE(decoder_->takes(file, 4000, 3000));
  const data::Box box = data::centre_box(options, 4000, 3000);
  std::vector<EncodedImage> jobs;
  for (int i = 0; i < 40; ++i)  // 1.4 GB decoded
    jobs.push_back({i, file, 4000, 3000, {box.x, box.y, box.width, box.height, 0, 0, 4000, 3000, false}});
  const auto images = decoder_->make_images(40, 64);
  EXPECT_EQ(decoder_->fill(*images, jobs, {}, Interpolation::bilinear), std::vector<int>{});
  EXPECT_LE(decoder_->memory(), std::size_t{700} << 20);
  const std::vector<std::uint8_t> wanted = expected(file, options, 0);
  for (const int i : {0, 13, 39})
    EXPECT_LT(data::compare(row(*images, i), wanted).mean, tolerance(64, 64)) << i;
}

// What --dry-run promises against what the GPU then lacks. Free memory comes in pages of 2 MiB, and kernels
// that are loaded when they first run take some.
TEST_F(JpegCuda, TakesTheMemoryItSays) {
  constexpr int kRows = 256, kBatches = 4, kSize = 224;
  constexpr double kSpare = 32 << 20;
  for (const auto& [width, height] : {std::pair{500, 375}, {1000, 750}}) {
    decoder_.reset();
    const std::size_t before = backend_->device_memory()->free;
    decoder_ = backend_->make_image_decoder();
    const std::vector<std::uint8_t> file = data::write_jpeg(data::gradient(width, height), {"420"});
    const auto w = static_cast<double>(width), h = static_cast<double>(height);
    std::vector<EncodedImage> jobs;
    for (int i = 0; i < kRows; ++i)
      jobs.push_back({i, file, width, height, {0, 0, w, h, 0, 0, width, height, false}});
    std::vector<std::unique_ptr<DeviceImages>> batches;
    for (int i = 0; i < kBatches; ++i) {
      batches.push_back(decoder_->make_images(kRows, kSize));
      EXPECT_EQ(decoder_->fill(*batches.back(), jobs, {}, Interpolation::bilinear), std::vector<int>{});
    }
    const auto taken = static_cast<double>(before - backend_->device_memory()->free);
    const auto promised = static_cast<double>(decoder_->memory_need(kRows, kSize, kBatches, w * h));
    EXPECT_NEAR(taken, promised, 0.1 * promised + kSpare) << width << "x" << height;
  }
}

TEST_F(JpegCuda, HostRowsAreCopied) {
  const auto images = decoder_->make_images(3, 8);
  std::vector<std::uint8_t> pixels(8 * 8 * 3);
  std::iota(pixels.begin(), pixels.end(), 1);
  const HostImage host[] = {{1, pixels.data()}};
  EXPECT_EQ(decoder_->fill(*images, {}, host, Interpolation::bilinear), std::vector<int>{});
  EXPECT_EQ(row(*images, 1), pixels);
  EXPECT_EQ(row(*images, 0), std::vector<std::uint8_t>(pixels.size()));
}

TEST_F(JpegCuda, TheLoaderGivesTheCpusRows) {
  const auto source = std::make_shared<data::MemorySource>(300);
  data::LoaderOptions options;
  options.batch_size = 64;
  options.threads = 4;
  options.transform = transform(true, 32, Interpolation::bilinear);
  options.fixed_split = true;
  data::Loader cpu(source, options);
  options.decoder = decoder_;
  data::Loader gpu(source, options);
  cpu.start_epoch(0);
  gpu.start_epoch(0);
  data::Batch wanted, found;
  while (cpu.next(wanted)) {
    ASSERT_TRUE(gpu.next(found));
    ASSERT_NE(found.device_images, nullptr);
    for (int i = 0; i < 64; ++i) {
      EXPECT_EQ(found.labels[i], wanted.labels[i]);
      const std::uint8_t* image = wanted.images + static_cast<std::size_t>(i) * 32 * 32 * 3;
      EXPECT_LT(data::compare(row(*found.device_images, i), {image, image + 32 * 32 * 3}).mean,
                tolerance(20, 20));
    }
  }
}

TEST_F(JpegCuda, AStepTakesImagesAsItTakesTheHosts) {
  plan::Options options;
  options.model.model = "resnet18";
  options.model.classes = 10;
  options.model.image_size = 32;
  options.model.batch = 4;
  const auto plan = std::make_shared<plan::Plan>(plan::make_plan(options, *backend_));
  const auto state = backend_->make_state();
  const auto step = backend_->compile(plan, state);
  for (const std::string& name : state->names()) {
    const graph::Tensor& tensor = state->tensor(name);
    if (tensor.kind == graph::TensorKind::momentum || tensor.kind == graph::TensorKind::scaler) continue;
    std::vector<float> values(static_cast<std::size_t>(tensor.shape.elements()));
    graph::initial_value(tensor, 1, false, options.model.model, values);
    state->write(name, values);
  }
  std::vector<std::uint8_t> pixels(4 * 32 * 32 * 3);
  Random random(3);
  for (std::uint8_t& byte : pixels) byte = static_cast<std::uint8_t>(random.next_u32());
  const auto images = decoder_->make_images(4, 32);
  std::vector<HostImage> rows;
  for (int i = 0; i < 4; ++i) rows.push_back({i, pixels.data() + static_cast<std::size_t>(i) * 32 * 32 * 3});
  decoder_->fill(*images, {}, rows, Interpolation::bilinear);
  const std::int32_t labels[] = {0, 3, 7, 9};
  const float scalars[graph::kStepScalars] = {0.05F, 1.0F};
  const auto loss = [&](bool device) {
    if (device)
      step->take_images(plan->model.images, *images);
    else
      step->write_input(plan->model.images, pixels.data(), pixels.size());
    step->write_input(plan->model.labels, labels, sizeof labels);
    step->write_input(plan->model.scalars, scalars, sizeof scalars);
    step->run(Section::compute);
    std::vector<float> metrics(graph::kLossMetrics);
    step->read(plan->model.metrics, metrics);
    return metrics[graph::kLossSum];
  };
  const float of_host = loss(false);
  std::fill(pixels.begin(), pixels.end(), std::uint8_t{0});
  EXPECT_NE(loss(false), of_host);
  EXPECT_NEAR(loss(true), of_host, 1e-3F * of_host);
}

}  // namespace
}  // namespace redline::backend
