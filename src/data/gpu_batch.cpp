#include "data/gpu_batch.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace redline::data {
namespace {

backend::ImageView to_backend(const View& view) {
  return {view.box.x,  view.box.y,      view.box.width,   view.box.height, view.clip.x,
          view.clip.y, view.clip.width, view.clip.height, view.flip};
}

}  // namespace

GpuBatch::GpuBatch(std::shared_ptr<backend::ImageDecoder> decoder, int rows, int size, Interpolation filter)
    : decoder_(std::move(decoder)),
      filter_(filter),
      rows_(static_cast<std::size_t>(rows)),
      files_(std::make_unique_for_overwrite<std::uint8_t[]>(kMostBytes * static_cast<std::size_t>(rows))),
      images_(decoder_->make_images(rows, size)) {}

bool GpuBatch::add(int row, std::span<const std::uint8_t> bytes, const Transform::Screened& screened) {
  if (bytes.size() > kMostBytes || !decoder_->takes(bytes, screened.width, screened.height)) return false;
  std::memcpy(file(row), bytes.data(), bytes.size());
  rows_[static_cast<std::size_t>(row)] = {true, bytes.size(), screened};
  return true;
}

std::vector<int> GpuBatch::decode(const BatchMemory& host) {
  std::vector<backend::EncodedImage> encoded;
  std::vector<backend::HostImage> ready;
  for (int i = 0; i < static_cast<int>(rows_.size()); ++i) {
    const Row& row = rows_[static_cast<std::size_t>(i)];
    if (row.added)
      encoded.push_back(
          {i, {file(i), row.bytes}, row.screened.width, row.screened.height, to_backend(row.screened.view)});
    else
      ready.push_back({i, host.image(i)});
  }
  return decoder_->fill(*images_, encoded, ready, filter_);
}

void GpuBatch::upload(std::span<const int> rows, const BatchMemory& host) {
  std::vector<backend::HostImage> ready;
  for (const int row : rows) ready.push_back({row, host.image(row)});
  decoder_->fill(*images_, {}, ready, Interpolation::bilinear);
}

void GpuBatch::clear() {
  for (Row& row : rows_) row.added = false;
}

int GpuBatch::added() const {
  return static_cast<int>(std::ranges::count_if(rows_, [](const Row& row) { return row.added; }));
}

}  // namespace redline::data
