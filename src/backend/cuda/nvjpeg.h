// The part of nvJPEG that decodes batches in hardware, found at run time: a machine without the library
// trains all the same, with images decoded by the CPU. The names, values and layouts are those of nvJPEG's C
// interface, release 13.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace redline::backend::cuda {

// Where one image goes: interleaved RGB in channel 0, `pitch` bytes from row to row.
struct NvjpegImage {
  unsigned char* channel[4] = {};
  std::size_t pitch[4] = {};
};

// A library handle with one decoding state. takes() is safe from any thread, decode() one at a time.
class Nvjpeg {
 public:
  // Throws UnavailableError when the library is not there, or the GPU has no decoding engines.
  Nvjpeg();
  ~Nvjpeg();
  Nvjpeg(const Nvjpeg&) = delete;
  Nvjpeg& operator=(const Nvjpeg&) = delete;

  const std::string& version() const { return version_; }
  unsigned engines() const { return engines_; }  // 0 when the library does not tell

  // Device memory that the library takes for itself when it decodes this many images of so many pixels in a
  // call, and keeps.
  static std::size_t memory_need(std::size_t images, double pixels);

  bool takes(std::span<const unsigned char> bytes);

  // Puts the decoding of images on a stream; true when the library accepted all of them. The library may
  // begin to write before earlier work of the stream is done: the caller waits for that first.
  bool decode(std::span<const unsigned char* const> data, std::span<const std::size_t> sizes,
              std::span<NvjpegImage> images, cudaStream_t stream);

 private:
  struct Functions;
  struct Parser;

  std::unique_ptr<Functions> functions_;
  void* handle_ = nullptr;
  void* state_ = nullptr;
  std::size_t batch_ = 0;  // that the state is set up for
  std::string version_;
  unsigned engines_ = 0;
  std::unique_ptr<Parser> parser_;
};

}  // namespace redline::backend::cuda
