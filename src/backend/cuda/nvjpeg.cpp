#include "backend/cuda/nvjpeg.h"

#include <algorithm>
#include <mutex>

#include "base/error.h"
#include "base/shared_library.h"

namespace redline::backend::cuda {
namespace {

constexpr const char* kLibrary = "libnvjpeg.so.13";
constexpr int kSuccess = 0, kArchMismatch = 7;
constexpr int kHardware = 3;        // the backend
constexpr int kRgbInterleaved = 5;  // the output format
constexpr int kSampling444 = 0;

}  // namespace

struct Nvjpeg::Functions {
  using Data = const unsigned char*;
  SharedLibrary library{kLibrary};
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
    if (library.loaded()) return library.need(name, "install CUDA 13's nvJPEG");
    throw UnavailableError(
        "there is no {} ({}): install CUDA 13's nvJPEG, or the Python package nvidia-nvjpeg", kLibrary,
        library.error());
  }
};

// Parsers of file headers, one for each thread that asks at the same time.
struct Nvjpeg::Parser {
  std::mutex mutex;
  std::vector<void*> idle;
};

Nvjpeg::Nvjpeg() : functions_(std::make_unique<Functions>()), parser_(std::make_unique<Parser>()) {
  const int created = functions_->create(kHardware, nullptr, nullptr, 0, &handle_);
  if (created != kSuccess) {
    throw UnavailableError("nvJPEG's hardware decoder does not start (status {}): {}", created,
                           created == kArchMismatch
                               ? "this GPU has no decoding engines"
                               : "in a container, NVIDIA_DRIVER_CAPABILITIES must have 'video' or be 'all'");
  }
  unsigned cores = 0;
  if (functions_->hardware(handle_, &engines_, &cores) != kSuccess) engines_ = 0;
  int major = 0, minor = 0;
  functions_->property(0, &major);
  functions_->property(1, &minor);
  version_ = fmt::format("{}.{}", major, minor);
  if (functions_->state_create(handle_, &state_) != kSuccess) {
    functions_->destroy(handle_);
    throw UnavailableError("nvJPEG has no memory for a decoder: use a smaller --batch-size");
  }
  // Whatever its sizes, this makes the library keep its buffers from batch to batch.
  functions_->preallocate(handle_, state_, 1, 1, 1, kSampling444, kRgbInterleaved);
}

Nvjpeg::~Nvjpeg() {
  for (void* stream : parser_->idle) functions_->stream_destroy(stream);
  functions_->state_destroy(state_);
  functions_->destroy(handle_);
}

std::size_t Nvjpeg::memory_need(std::size_t images, double pixels) {
  // Of release 13.0, on an H200: batches of 64 and 256 images of 500x375 took 28 and 32 MiB, and of 1000x750
  // 80 and 82, which is 32 images under way and something fixed.
  constexpr std::size_t kUnderWay = 32, kFixed = std::size_t{12} << 20;
  return kFixed + std::min(images, kUnderWay) * static_cast<std::size_t>(3 * pixels);
}

bool Nvjpeg::takes(std::span<const unsigned char> bytes) {
  void* stream = nullptr;
  {
    const std::lock_guard lock(parser_->mutex);
    if (!parser_->idle.empty()) {
      stream = parser_->idle.back();
      parser_->idle.pop_back();
    }
  }
  if (stream == nullptr && functions_->stream_create(handle_, &stream) != kSuccess) return false;
  int refusal = 1;
  const bool parsed =
      functions_->stream_parse(handle_, bytes.data(), bytes.size(), 0, 0, stream) == kSuccess &&
      functions_->supported(handle_, stream, &refusal) == kSuccess;
  const std::lock_guard lock(parser_->mutex);
  parser_->idle.push_back(stream);
  return parsed && refusal == 0;
}

bool Nvjpeg::decode(std::span<const unsigned char* const> data, std::span<const std::size_t> sizes,
                    std::span<NvjpegImage> images, cudaStream_t stream) {
  check(data.size() == sizes.size() && data.size() == images.size(), "a batch of unequal lists");
  if (batch_ != data.size()) {
    batch_ = 0;
    if (functions_->initialize(handle_, state_, static_cast<int>(data.size()), 1, kRgbInterleaved) !=
        kSuccess)
      return false;
    batch_ = data.size();
  }
  const int status = functions_->decode(handle_, state_, data.data(), sizes.data(), images.data(), stream);
  if (status != kSuccess) batch_ = 0;  // begins anew after a failure
  return status == kSuccess;
}

}  // namespace redline::backend::cuda
