#include "backend/cuda/jpeg.h"

#include <algorithm>
#include <mutex>
#include <vector>

#include "backend/cuda/kernels/crop.h"
#include "base/error.h"
#include "base/shared_library.h"

namespace redline::backend::cuda {
namespace {

// --- The part of nvJPEG that is used, found at run time: a machine without the library trains all the same,
// with images decoded by the CPU. Names, values and layouts are those of its C interface, release 13. ---

constexpr int kSuccess = 0, kArchMismatch = 7;
constexpr int kHardware = 3;        // the backend
constexpr int kRgbInterleaved = 5;  // the output format
constexpr int kSampling444 = 0;

// Where one image goes: interleaved RGB in channel 0, `pitch` bytes from row to row.
struct NvjpegImage {
  unsigned char* channel[4] = {};
  std::size_t pitch[4] = {};
};

struct NvjpegFunctions {
  using Data = const unsigned char*;
  SharedLibrary library{"libnvjpeg.so.13"};
  int (*create)(int backend, void* device_allocator, void* pinned_allocator, unsigned flags,
                void** handle) = function("nvjpegCreateEx");
  int (*destroy)(void* handle) = function("nvjpegDestroy");
  int (*property)(int which, int* value) = function("nvjpegGetProperty");
  int (*hardware)(void* handle, unsigned* engines,
                  unsigned* cores) = function("nvjpegGetHardwareDecoderInfo");
  int (*state_create)(void* handle, void** state) = function("nvjpegJpegStateCreate");
  int (*state_destroy)(void* state) = function("nvjpegJpegStateDestroy");
  int (*stream_create)(void* handle, void** stream) = function("nvjpegJpegStreamCreate");
  int (*stream_destroy)(void* stream) = function("nvjpegJpegStreamDestroy");
  int (*stream_parse)(void* handle, Data data, std::size_t size, int metadata, int keep,
                      void* stream) = function("nvjpegJpegStreamParse");
  int (*supported)(void* handle, void* stream, int* refusal) = function("nvjpegDecodeBatchedSupported");
  int (*preallocate)(void* handle, void* state, int batch, int width, int height, int sampling,
                     int format) = function("nvjpegDecodeBatchedPreAllocate");
  int (*initialize)(void* handle, void* state, int batch, int threads,
                    int format) = function("nvjpegDecodeBatchedInitialize");
  int (*decode)(void* handle, void* state, const Data* data, const std::size_t* sizes, NvjpegImage* images,
                cudaStream_t stream) = function("nvjpegDecodeBatched");

 private:
  SharedLibrary::Symbol function(const char* name) const {
    return library.need(name, "install CUDA 13's nvJPEG, or the Python package nvidia-nvjpeg");
  }
};

// nvJPEG's decoder of batches in hardware, with one decoding state. takes() is safe from any thread, decode()
// one at a time.
class Nvjpeg {
 public:
  // Throws UnavailableError if the library is missing, or the GPU has no decoding engines.
  Nvjpeg() {
    const int created = functions_.create(kHardware, nullptr, nullptr, 0, &handle_);
    if (created != kSuccess) {
      throw UnavailableError(
          "nvJPEG's hardware decoder failed to start (status {}): {}", created,
          created == kArchMismatch
              ? "this GPU has no decoding engines"
              : "in a container, NVIDIA_DRIVER_CAPABILITIES must have 'video' or be 'all'");
    }
    unsigned cores = 0;
    if (functions_.hardware(handle_, &engines_, &cores) != kSuccess) engines_ = 0;
    int major = 0, minor = 0;
    functions_.property(0, &major);
    functions_.property(1, &minor);
    version_ = fmt::format("{}.{}", major, minor);
    if (functions_.state_create(handle_, &state_) != kSuccess) {
      functions_.destroy(handle_);
      throw UnavailableError("nvJPEG has no memory for a decoder: use a smaller --batch-size");
    }
    // With any sizes, this makes the library keep its buffers from batch to batch.
    functions_.preallocate(handle_, state_, 1, 1, 1, kSampling444, kRgbInterleaved);
  }
  ~Nvjpeg() {
    for (void* stream : idle_) functions_.stream_destroy(stream);
    functions_.state_destroy(state_);
    functions_.destroy(handle_);
  }
  Nvjpeg(const Nvjpeg&) = delete;
  Nvjpeg& operator=(const Nvjpeg&) = delete;

  const std::string& version() const { return version_; }
  unsigned engines() const { return engines_; }  // 0 if the library does not say

  // Device memory that the library takes for itself when it decodes this many images of so many pixels in a
  // call, and keeps.
  static std::size_t memory_need(std::size_t images, double pixels) {
    // Release 13.0 on an H200: batches of 64 and 256 images took 28 and 32 MiB at 500x375, and 80 and 82 at
    // 1000x750: about 32 images in flight, and a fixed part.
    constexpr std::size_t kUnderWay = 32, kFixed = std::size_t{12} << 20;
    return kFixed + std::min(images, kUnderWay) * static_cast<std::size_t>(3 * pixels);
  }

  bool takes(std::span<const unsigned char> bytes) {
    void* stream = nullptr;
    {
      const std::lock_guard lock(parsing_);
      if (!idle_.empty()) {
        stream = idle_.back();
        idle_.pop_back();
      }
    }
    if (stream == nullptr && functions_.stream_create(handle_, &stream) != kSuccess) return false;
    int refusal = 1;
    const bool parsed =
        functions_.stream_parse(handle_, bytes.data(), bytes.size(), 0, 0, stream) == kSuccess &&
        functions_.supported(handle_, stream, &refusal) == kSuccess;
    const std::lock_guard lock(parsing_);
    idle_.push_back(stream);
    return parsed && refusal == 0;
  }

  // Puts the decoding of images on a stream; true when the library accepted all of them. The library may
  // begin to write before earlier work of the stream is done: the caller waits for that first.
  bool decode(std::span<const unsigned char* const> data, std::span<const std::size_t> sizes,
              std::span<NvjpegImage> images, cudaStream_t stream) {
    check(data.size() == sizes.size() && data.size() == images.size(), "a batch of unequal lists");
    if (batch_ != data.size()) {
      batch_ = 0;
      if (functions_.initialize(handle_, state_, static_cast<int>(data.size()), 1, kRgbInterleaved) !=
          kSuccess)
        return false;
      batch_ = data.size();
    }
    const int status = functions_.decode(handle_, state_, data.data(), sizes.data(), images.data(), stream);
    if (status != kSuccess) batch_ = 0;  // set up again after a failure
    return status == kSuccess;
  }

 private:
  NvjpegFunctions functions_;
  void* handle_ = nullptr;
  void* state_ = nullptr;
  std::size_t batch_ = 0;  // for which the state is set up
  std::string version_;
  unsigned engines_ = 0;
  std::mutex parsing_;
  std::vector<void*> idle_;  // parsers of file headers, one for each thread that asks at the same time
};

// --- Batches of images ---

// The decoded images of a launch are in one pool. It grows to the largest batch seen; a batch that needs more
// than the limit is decoded in parts.
constexpr std::size_t kPoolStep = std::size_t{32} << 20, kPoolLimit = std::size_t{512} << 20;
constexpr std::size_t kAlignment = 256;
// A larger image goes to the CPU, which decodes it at a fraction of its size.
constexpr std::int64_t kMostPixels = 16 << 20;
constexpr int kMostSide = 1 << 14;
constexpr std::size_t kMostImages = 1024;  // decoded in one launch

std::size_t pool_bytes(std::size_t pixels) { return (pixels * 3 + kAlignment - 1) / kAlignment * kAlignment; }

std::size_t pool_bytes(const EncodedImage& image) {
  return pool_bytes(static_cast<std::size_t>(image.width) * static_cast<std::size_t>(image.height));
}

// The pool's size for a launch of `needed` bytes: a quarter more, since growing it stops the device.
std::size_t pool_for(std::size_t needed) {
  return (needed + needed / 4 + kPoolStep - 1) / kPoolStep * kPoolStep;
}

class JpegDecoder final : public ImageDecoder {
 public:
  std::string description() const override {
    return fmt::format("nvJPEG {}, {} hardware engines", nvjpeg_.version(), nvjpeg_.engines());
  }

  bool takes(std::span<const std::uint8_t> bytes, int width, int height) override {
    if (width > kMostSide || height > kMostSide || std::int64_t{width} * height > kMostPixels) return false;
    use_device();
    return nvjpeg_.takes(bytes);
  }

  std::unique_ptr<DeviceImages> make_images(int rows, int size) override {
    use_device();
    return std::make_unique<CudaImages>(rows, size);
  }

  std::vector<int> fill(DeviceImages& images, std::span<const EncodedImage> encoded,
                        std::span<const HostImage> host, Interpolation filter) override {
    auto* own = dynamic_cast<CudaImages*>(&images);
    check(own != nullptr, "images that another decoder made");
    const std::lock_guard lock(mutex_);
    use_device();
    std::vector<int> failed;
    while (!encoded.empty()) {
      const std::span<const EncodedImage> part = encoded.first(fitting(encoded));
      decode(part, *own, filter, failed);
      encoded = encoded.subspan(part.size());
    }
    own->wait_until_copied(stream_.get());
    copy(host, *own);
    wait();
    return failed;
  }

  std::size_t memory() const override {
    const std::lock_guard lock(mutex_);
    return pool_.size() + jobs_.size() + unwritten_.size();
  }

  std::size_t memory_need(int rows, int size, int batches, double pixels) const override {
    const std::size_t images = CudaImages::bytes(rows, size) * static_cast<std::size_t>(batches);
    const std::size_t file = pool_bytes(static_cast<std::size_t>(pixels));
    const std::size_t fit = std::max<std::size_t>(1, kPoolLimit / std::max<std::size_t>(1, file));
    const std::size_t launch = std::min({static_cast<std::size_t>(rows), fit, kMostImages});
    return images + pool_for(launch * file) + Nvjpeg::memory_need(launch, pixels) + jobs_.size() +
           unwritten_.size();
  }

 private:
  void use_device() const { check_cuda(cudaSetDevice(device_), "choosing the device"); }

  void wait() {
    record(done_, stream_.get());
    wait_for(done_);
  }

  // How many of the first images the pool has room for; at least one.
  static std::size_t fitting(std::span<const EncodedImage> images) {
    std::size_t bytes = 0, count = 0;
    for (; count < std::min(images.size(), kMostImages); ++count) {
      bytes += pool_bytes(images[count]);
      if (bytes > kPoolLimit && count > 0) break;
    }
    return count;
  }

  // Rows that follow each other on both sides go in one copy.
  void copy(std::span<const HostImage> host, const CudaImages& to) {
    const std::size_t bytes = to.row_bytes();
    while (!host.empty()) {
      const HostImage& first = host.front();
      std::size_t run = 1;
      while (run < host.size() && host[run].row == first.row + static_cast<int>(run) &&
             host[run].pixels == first.pixels + run * bytes) {
        ++run;
      }
      copy_async(to.row(first.row), first.pixels, run * bytes, stream_.get());
      host = host.subspan(run);
    }
  }

  // Decodes and crops images that fit the pool together.
  void decode(std::span<const EncodedImage> images, const CudaImages& to, Interpolation filter,
              std::vector<int>& failed) {
    if (!make_room(images)) {
      for (const EncodedImage& image : images) failed.push_back(image.row);
      return;
    }
    place(images, to);
    const auto count = static_cast<int>(images.size());
    const auto* jobs = reinterpret_cast<const CropJob*>(jobs_.data());
    copy_async(jobs_.data(), host_jobs_.data(), images.size() * sizeof(CropJob), stream_.get());
    mark_images(jobs, count, stream_.get());
    wait();  // the engines do not wait for the stream
    if (!nvjpeg_.decode(data_, sizes_, targets_, stream_.get())) {
      wait();
      cudaGetLastError();
      if (images.size() == 1) {
        failed.push_back(images.front().row);
        return;
      }
      // One bad file makes the whole call fail: halving finds it.
      decode(images.first(images.size() / 2), to, filter, failed);
      decode(images.subspan(images.size() / 2), to, filter, failed);
      return;
    }
    auto* unwritten = reinterpret_cast<std::uint8_t*>(unwritten_.data());
    find_marks(jobs, count, unwritten, stream_.get());
    to.wait_until_copied(stream_.get());  // the step that took the batch before may still read it
    crop_images(jobs, count, to.size(), filter, stream_.get());
    check_cuda(cudaGetLastError(), "cropping images");
    copy_async(host_unwritten_.data(), unwritten, images.size(), stream_.get());
    wait();
    for (std::size_t i = 0; i < images.size(); ++i) {
      if (host_unwritten_.data()[i] != std::byte{0}) failed.push_back(images[i].row);
    }
  }

  // Grows the pool where the images need it; false when the device has no memory for that.
  bool make_room(std::span<const EncodedImage> images) {
    std::size_t needed = 0;
    for (const EncodedImage& image : images) needed += pool_bytes(image);
    if (needed <= pool_.size()) return true;
    pool_ = DeviceMemory();  // first, so that the two never exist together
    try {
      pool_ = DeviceMemory(pool_for(needed));
    } catch (const UnavailableError&) {
      cudaGetLastError();
      return false;
    }
    return true;
  }

  // Gives each image its place in the pool, and writes the lists that decoding and cropping take.
  void place(std::span<const EncodedImage> images, const CudaImages& to) {
    data_.clear();
    sizes_.clear();
    targets_.clear();
    auto* at = reinterpret_cast<std::uint8_t*>(pool_.data());
    auto* jobs = reinterpret_cast<CropJob*>(host_jobs_.data());
    for (const EncodedImage& image : images) {
      const ImageView& view = image.view;
      data_.push_back(image.bytes.data());
      sizes_.push_back(image.bytes.size());
      targets_.push_back({.channel = {at}, .pitch = {static_cast<std::size_t>(image.width) * 3}});
      *jobs++ = {at,
                 image.width,
                 image.height,
                 static_cast<float>(view.x),
                 static_cast<float>(view.y),
                 static_cast<float>(view.width),
                 static_cast<float>(view.height),
                 view.clip_x,
                 view.clip_y,
                 view.clip_x + view.clip_width,
                 view.clip_y + view.clip_height,
                 view.flip ? 1 : 0,
                 reinterpret_cast<std::uint8_t*>(to.row(image.row))};
      at += pool_bytes(image);
    }
  }

  mutable std::mutex mutex_;
  int device_ = current_device();
  Nvjpeg nvjpeg_;
  // Its kernels are small and run first, so that the next batch is ready when the step ends.
  Stream stream_ = make_stream(/*urgent=*/true);
  Event done_ = make_event(/*timed=*/false, /*sleeps=*/true);
  PinnedMemory host_jobs_{kMostImages * sizeof(CropJob)}, host_unwritten_{kMostImages};
  DeviceMemory jobs_{kMostImages * sizeof(CropJob)}, unwritten_{kMostImages}, pool_;
  std::vector<const unsigned char*> data_;
  std::vector<std::size_t> sizes_;
  std::vector<NvjpegImage> targets_;
};

}  // namespace

CudaImages::CudaImages(int rows, int size) : rows_(rows), size_(size), memory_(bytes(rows, size)) {}

void CudaImages::read(int row, std::span<std::uint8_t> pixels) const {
  check(row >= 0 && row < rows_ && pixels.size() == row_bytes(), "row {} of {} into {} bytes", row, rows_,
        pixels.size());
  download(pixels.data(), this->row(row), pixels.size());
}

void CudaImages::copy_to(std::byte* target, std::size_t bytes, cudaStream_t stream) const {
  check(bytes == memory_.size(), "a batch of images has {} bytes, not {}", memory_.size(), bytes);
  copy_async(target, memory_.data(), bytes, stream);
  record(copied_, stream);
}

void CudaImages::wait_until_copied(cudaStream_t stream) const { follow(stream, copied_); }

std::shared_ptr<ImageDecoder> make_jpeg_decoder() { return std::make_shared<JpegDecoder>(); }

}  // namespace redline::backend::cuda
