#include "backend/cuda/kernels/crop.h"

#include <cuda_runtime_api.h>

namespace redline::backend::cuda {
namespace {

__constant__ const std::uint8_t kMark[3] = {3, 251, 37};  // a green that photographs do not have

__device__ std::uint8_t* mark_of(const CropJob& job, int mark) {
  const std::int64_t last = static_cast<std::int64_t>(job.width) * job.height - 1;
  return job.pixels + last * mark / (kMarks - 1) * 3;
}

// One block per image, one thread per mark.
__global__ void mark_kernel(const CropJob* jobs) {
  std::uint8_t* pixel = mark_of(jobs[blockIdx.x], static_cast<int>(threadIdx.x));
  for (int c = 0; c < 3; ++c) pixel[c] = kMark[c];
}

__global__ void find_kernel(const CropJob* jobs, std::uint8_t* unwritten) {
  const std::uint8_t* pixel = mark_of(jobs[blockIdx.x], static_cast<int>(threadIdx.x));
  bool same = true;
  for (int c = 0; c < 3; ++c) same = same && pixel[c] == kMark[c];
  const unsigned found = __ballot_sync((1U << kMarks) - 1, same);
  if (threadIdx.x == 0) unwritten[blockIdx.x] = found != 0 ? 1 : 0;
}

constexpr int kTileWidth = 32, kTileHeight = 8;

template <Interpolation kFilter>
__global__ void crop_kernel(const CropJob* jobs, int size) {
  const CropJob job = jobs[blockIdx.z];
  const int column = static_cast<int>(blockIdx.x * kTileWidth + threadIdx.x);
  const int row = static_cast<int>(blockIdx.y * kTileHeight + threadIdx.y);
  if (column < size && row < size) crop_pixel<kFilter>(job, size, column, row);
}

}  // namespace

void mark_images(const CropJob* jobs, int count, cudaStream_t stream) {
  if (count > 0) mark_kernel<<<count, kMarks, 0, stream>>>(jobs);
}

void find_marks(const CropJob* jobs, int count, std::uint8_t* unwritten, cudaStream_t stream) {
  if (count > 0) find_kernel<<<count, kMarks, 0, stream>>>(jobs, unwritten);
}

void crop_images(const CropJob* jobs, int count, int size, Interpolation filter, cudaStream_t stream) {
  if (count == 0) return;
  const dim3 grid((size + kTileWidth - 1) / kTileWidth, (size + kTileHeight - 1) / kTileHeight, count);
  const dim3 block(kTileWidth, kTileHeight);
  if (filter == Interpolation::bilinear)
    crop_kernel<Interpolation::bilinear><<<grid, block, 0, stream>>>(jobs, size);
  else
    crop_kernel<Interpolation::bicubic><<<grid, block, 0, stream>>>(jobs, size);
}

}  // namespace redline::backend::cuda
