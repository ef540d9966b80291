// JPEGs decoded by a device: an optional part of a backend. The host says which part of each image a row of a
// batch shows; the device decodes, crops, resizes and mirrors it, and the batch is never in host memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/interpolation.h"

namespace redline::backend {

// The images of one batch in a device's memory: u8 [rows, size, size, 3]. Executable::take_images reads them.
class DeviceImages {
 public:
  virtual ~DeviceImages() = default;
  virtual int rows() const = 0;
  virtual int size() const = 0;
  // Copies one row to the host: [size, size, 3].
  virtual void read(int row, std::span<std::uint8_t> pixels) const = 0;
};

// What a row shows: a box, in pixels of the stored image. The filter reads no pixel outside the clip.
struct ImageView {
  double x = 0, y = 0, width = 0, height = 0;
  int clip_x = 0, clip_y = 0, clip_width = 0, clip_height = 0;
  bool flip = false;
};

struct EncodedImage {
  int row = 0;
  std::span<const std::uint8_t> bytes;  // a JPEG that the decoder takes
  int width = 0, height = 0;            // as its header says
  ImageView view;
};

struct HostImage {
  int row = 0;
  const std::uint8_t* pixels = nullptr;  // [size, size, 3]
};

// Safe from any thread; batches are decoded one after the other.
class ImageDecoder {
 public:
  virtual ~ImageDecoder() = default;
  virtual std::string description() const = 0;  // "nvJPEG 13.0, 8 hardware engines"

  // Whether the device can decode this file. The caller has checked its header and its limits.
  virtual bool takes(std::span<const std::uint8_t> bytes, int width, int height) = 0;

  // Memory for a batch, zero-filled. Throws UnavailableError when there is none.
  virtual std::unique_ptr<DeviceImages> make_images(int rows, int size) = 0;

  // Fills rows of `images`, those of `encoded` by decoding and those of `host` by copying, and returns when
  // they are complete. Waits for steps that still read the images. Returns the rows that could not be
  // decoded; their content is undefined.
  virtual std::vector<int> fill(DeviceImages& images, std::span<const EncodedImage> encoded,
                                std::span<const HostImage> host, Interpolation filter) = 0;

  // Device memory that the decoder has allocated itself, without that of the images.
  virtual std::size_t memory() const = 0;
  // Device memory that decoding will need, in batches of `rows`, with the images (`size` pixels per side) of
  // `batches` of them at a time, for files of `pixels` per image on average.
  virtual std::size_t memory_need(int rows, int size, int batches, double pixels) const = 0;
};

}  // namespace redline::backend
