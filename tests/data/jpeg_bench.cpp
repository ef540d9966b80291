// How fast a thread makes training images of JPEGs: with Redline's own reader, and with the planes that
// libjpeg gives (jpeg_read_raw_data), both resized by the same code.
//     jpeg_bench FOLDER [SIZE [ROUNDS]]
// Takes every *.jpg, *.jpeg and *.JPEG at any depth that the own reader takes, reads them all into memory,
// and alternates between the two. Seconds are of this thread's CPU time, as other programs may run beside it.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <string>
#include <vector>

// jpeglib.h needs size_t and FILE declared before it.
#include <jpeglib.h>

#include <fmt/format.h>

#include "base/error.h"
#include "data/file.h"
#include "data/images/augment.h"
#include "data/images/baseline_jpeg.h"

namespace {

using namespace redline::data;
using Bytes = std::vector<std::uint8_t>;

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

std::vector<Bytes> read_all(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    const std::string ending = entry.path().extension().string();
    if (ending == ".jpg" || ending == ".jpeg" || ending == ".JPEG") paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  BaselineJpeg reader;
  ImageInfo info;
  std::vector<Bytes> files;
  FileBytes memory;
  for (const auto& path : paths) {
    const auto bytes = read_whole(path, 1 << 28, memory);
    if (reader.open(bytes, info)) files.emplace_back(bytes.begin(), bytes.end());
  }
  return files;
}

// libjpeg's planes of an image, from its top to the end of the crop's last row of MCUs: the part that its
// interface lets one read.
class RawReader {
 public:
  RawReader() {
    jpeg_.err = jpeg_std_error(&errors_);
    jpeg_create_decompress(&jpeg_);
  }
  ~RawReader() { jpeg_destroy_decompress(&jpeg_); }
  RawReader(const RawReader&) = delete;
  RawReader& operator=(const RawReader&) = delete;

  ImageInfo open(const Bytes& bytes) {
    jpeg_mem_src(&jpeg_, bytes.data(), bytes.size());
    jpeg_read_header(&jpeg_, TRUE);
    ImageInfo info;
    info.width = static_cast<int>(jpeg_.image_width);
    info.height = static_cast<int>(jpeg_.image_height);
    return info;
  }

  Planes decode(const Rect& region, int shrink) {
    jpeg_.raw_data_out = TRUE;
    jpeg_.scale_num = 1;
    jpeg_.scale_denom = static_cast<unsigned>(shrink);
    jpeg_.dct_method = JDCT_ISLOW;
    jpeg_.out_color_space = jpeg_.jpeg_color_space;
    jpeg_start_decompress(&jpeg_);
    const int tall = jpeg_.max_v_samp_factor * 8, rows = (region.y + region.height + tall - 1) / tall;
    Planes planes;
    planes.count = jpeg_.num_components;
    for (int i = 0; i < planes.count; ++i) {
      const jpeg_component_info& c = jpeg_.comp_info[i];
      const int side = c.DCT_scaled_size, height = rows * c.v_samp_factor * side;
      Plane& plane = planes.plane[i];
      plane.stride = static_cast<int>(c.width_in_blocks) * side + kSlack;
      Bytes& pixels = pixels_[i];
      if (pixels.size() < static_cast<std::size_t>(plane.stride * height))
        pixels.resize(static_cast<std::size_t>(plane.stride * height));
      plane.data = pixels.data();
      plane.step_x = jpeg_.max_h_samp_factor * 8 / (c.h_samp_factor * side);
      plane.step_y = jpeg_.max_v_samp_factor * 8 / (c.v_samp_factor * side);
      plane.width = (static_cast<int>(jpeg_.image_width) + plane.step_x - 1) / plane.step_x;
      plane.height =
          std::min(height, (static_cast<int>(jpeg_.image_height) + plane.step_y - 1) / plane.step_y);
    }
    for (int row = 0; row < rows; ++row) {
      JSAMPROW lines[3][4 * 16];
      JSAMPARRAY all[3];
      for (int i = 0; i < planes.count; ++i) {
        const jpeg_component_info& c = jpeg_.comp_info[i];
        const int count = c.v_samp_factor * c.DCT_scaled_size;
        for (int y = 0; y < count; ++y)
          lines[i][y] = pixels_[i].data() + planes.plane[i].stride * (row * count + y);
        all[i] = lines[i];
      }
      jpeg_read_raw_data(&jpeg_, all,
                         static_cast<unsigned>(jpeg_.max_v_samp_factor * jpeg_.min_DCT_scaled_size));
    }
    jpeg_abort_decompress(&jpeg_);
    return planes;
  }

 private:
  static constexpr int kSlack = 64;  // the last MCU may be wider than the image
  jpeg_decompress_struct jpeg_{};
  jpeg_error_mgr errors_{};
  Bytes pixels_[3];
};

class OwnReader {
 public:
  ImageInfo open(const Bytes& bytes) {
    ImageInfo info;
    redline::check(reader_.open(bytes, info), "a file that was taken before");
    return info;
  }
  Planes decode(const Rect& region, int shrink) {
    Planes planes;
    redline::check(reader_.decode(region, shrink, planes), "a damaged file");
    return planes;
  }

 private:
  BaselineJpeg reader_;
};

// Images a second of one pass over all files.
template <typename Reader>
double measure(Reader& reader, const std::vector<Bytes>& files, int size, int round) {
  TransformOptions options;
  options.size = size;
  Resizer resizer;
  Bytes out(static_cast<std::size_t>(size * size * 3));
  const double begin = cpu_seconds();
  for (std::size_t i = 0; i < files.size(); ++i) {
    const ImageInfo info = reader.open(files[i]);
    redline::Random random = sample_random(1, round, static_cast<std::int64_t>(i));
    const View view = choose_view(options, info.width, info.height, random);
    const Planes planes = reader.decode(view.clip, choose_shrink(view.clip, size, size));
    resizer.resize(planes, view.box, size, size, options.filter, view.flip, out.data());
  }
  return static_cast<double>(files.size()) / (cpu_seconds() - begin);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 2) return 64;
  const int size = argc > 2 ? std::atoi(argv[2]) : 224, rounds = argc > 3 ? std::atoi(argv[3]) : 9;
  const std::vector<Bytes> files = read_all(argv[1]);
  if (files.empty() || size < 1 || rounds < 1) return 64;
  std::size_t bytes = 0;
  for (const Bytes& file : files) bytes += file.size();
  OwnReader own;
  RawReader raw;
  std::vector<double> ours, theirs, ratios;
  for (int round = 0; round < rounds; ++round) {
    ours.push_back(measure(own, files, size, round));
    theirs.push_back(measure(raw, files, size, round));
    ratios.push_back(ours.back() / theirs.back());
  }
  fmt::print("{} files of {:.1f} KiB, to {} px, medians of {} rounds\n", files.size(),
             static_cast<double>(bytes) / 1024 / static_cast<double>(files.size()), size, rounds);
  fmt::print("own reader {:.0f} images/s, libjpeg's planes {:.0f} images/s, ratio {:.2f}\n", median(ours),
             median(theirs), median(ratios));
  return 0;
} catch (const redline::Error& error) {
  fmt::print(stderr, "{}\n", error.what());
  return static_cast<int>(error.code());
}
