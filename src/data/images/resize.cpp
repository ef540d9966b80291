#include "data/images/resize.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "data/images/kernels/kernels.h"

namespace redline::data {
namespace {

int round_up(int value, int multiple) { return (value + multiple - 1) / multiple * multiple; }

double support_of(Interpolation filter) { return filter == Interpolation::bilinear ? 1.0 : 2.0; }

}  // namespace

Rect pixels_of(const Box& box, int width, int height) {
  const int x0 = std::clamp(static_cast<int>(std::floor(box.x)), 0, width - 1);
  const int y0 = std::clamp(static_cast<int>(std::floor(box.y)), 0, height - 1);
  const int x1 = std::clamp(static_cast<int>(std::ceil(box.x + box.width)), x0 + 1, width);
  const int y1 = std::clamp(static_cast<int>(std::ceil(box.y + box.height)), y0 + 1, height);
  return {x0, y0, x1 - x0, y1 - y0};
}

void Resizer::Axis::plan(double start, double length, int clip_begin, int clip_end, int outputs,
                         Interpolation filter, int multiple) {
  const double scale = length / outputs;
  const double stretch = std::max(scale, 1.0);  // shrinking widens the filter, growing does not narrow it
  taps = round_up(static_cast<int>(std::ceil(2 * support_of(filter) * stretch)), multiple);
  if (multiple == 4 && taps > 4) taps = round_up(taps, 8);
  first.resize(static_cast<std::size_t>(outputs));
  weights.resize(static_cast<std::size_t>(outputs) * static_cast<std::size_t>(taps));
  scratch.resize(static_cast<std::size_t>(taps * kPlanLanes));
  kernels().plan_axis({start, length, clip_begin, clip_end, outputs, taps, filter}, scratch.data(),
                      first.data(), weights.data());
}

void Resizer::Axis::reverse() {
  std::reverse(first.begin(), first.end());
  const auto count = static_cast<std::ptrdiff_t>(first.size());
  for (std::ptrdiff_t i = 0, j = count - 1; i < j; ++i, --j)
    std::swap_ranges(weights.begin() + i * taps, weights.begin() + (i + 1) * taps,
                     weights.begin() + j * taps);
}

int Resizer::Axis::start_at_zero() {
  const int begin = std::min(first.front(), first.back());
  for (int& at : first) at -= begin;
  return begin;
}

void Resizer::Axis::pad(int outputs) {
  first.resize(static_cast<std::size_t>(outputs), 0);
  weights.resize(static_cast<std::size_t>(outputs) * static_cast<std::size_t>(taps), 0);
}

void Resizer::resize(const Pixels& source, const Box& box, const Rect& clip, int out_width, int out_height,
                     Interpolation filter, bool flip, std::uint8_t* out) {
  check(clip.x >= 0 && clip.y >= 0 && clip.width > 0 && clip.height > 0 &&
            clip.x + clip.width <= source.width && clip.y + clip.height <= source.height,
        "a clip outside its image");
  check(out_width > 0 && out_height > 0 && box.width > 0 && box.height > 0, "resizing to or from nothing");
  across_.plan(box.x, box.width, clip.x, clip.x + clip.width, out_width, filter, 2);
  down_.plan(box.y, box.height, clip.y, clip.y + clip.height, out_height, filter, 1);
  if (flip) across_.reverse();

  // Only the columns that the horizontal pass will read.
  const int last = std::max(across_.first.front(), across_.first.back());
  const int left = across_.start_at_zero();
  const int right = std::min(clip.x + clip.width, last + across_.taps);
  // Taps past the clip have weight zero, but are read.
  row_.assign(static_cast<std::size_t>((right - left + across_.taps) * 3 + kRowPadding), 0);
  for (int y = 0; y < out_height; ++y) {
    const int top = down_.first[static_cast<std::size_t>(y)];
    const int rows = std::min(down_.taps, source.height - top);
    kernels().blend_rows(source.data + top * source.stride + left * 3, source.stride,
                         down_.weights.data() + static_cast<std::ptrdiff_t>(y) * down_.taps, rows,
                         (right - left) * 3, row_.data());
    kernels().blend_pixels(row_.data(), across_.first.data(), across_.weights.data(), across_.taps, out_width,
                           out + std::ptrdiff_t{y} * out_width * 3);
  }
}

void Resizer::resize(const Planes& source, const Box& box, int out_width, int out_height,
                     Interpolation filter, bool flip, std::uint8_t* out) {
  check(out_width > 0 && out_height > 0 && box.width > 0 && box.height > 0, "resizing to or from nothing");
  const int outputs = round_up(out_width, 4);
  std::size_t longest = 0;
  // The two planes of colour have the same geometry, so that there are two plans at most.
  for (int i = 0; i < std::min(source.count, 2); ++i) {
    const Plane& plane = source.plane[i];
    PlaneWork& work = planes_[static_cast<std::size_t>(i)];
    const Box part = plane.map(box);
    const Rect clip = pixels_of(part, plane.width, plane.height);
    work.across.plan(part.x, part.width, clip.x, clip.x + clip.width, out_width, filter, 4);
    work.down.plan(part.y, part.height, clip.y, clip.y + clip.height, out_height, filter, 1);
    if (flip) work.across.reverse();
    const int last = std::max(work.across.first.front(), work.across.first.back());
    work.left = work.across.start_at_zero();
    work.values = std::min(clip.x + clip.width, last + work.across.taps) - work.left;
    work.across.pad(outputs);
    longest = std::max(longest, static_cast<std::size_t>(work.values + work.across.taps + kRowPadding));
  }
  for (auto& line : lines_) line.resize(static_cast<std::size_t>(outputs + kRowPadding));
  row_.assign(3 * longest, 0);
  const auto work_of = [&](int i) -> const PlaneWork& {
    return planes_[static_cast<std::size_t>(std::min(i, 1))];
  };
  const auto row_of = [&](int i) { return row_.data() + static_cast<std::size_t>(i) * longest; };
  for (int y = 0; y < out_height; ++y) {
    // All rows before the first is read again: reading across two stores that are still under way would
    // stall.
    for (int i = 0; i < source.count; ++i) {
      const Plane& plane = source.plane[i];
      const PlaneWork& work = work_of(i);
      const int top = work.down.first[static_cast<std::size_t>(y)];
      kernels().blend_rows(plane.data + top * plane.stride + work.left, plane.stride,
                           work.down.weights.data() + static_cast<std::ptrdiff_t>(y) * work.down.taps,
                           std::min(work.down.taps, plane.height - top), work.values, row_of(i));
    }
    for (int i = 0; i < source.count; ++i) {
      const Resizer::Axis& across = work_of(i).across;
      kernels().blend_values(row_of(i), across.first.data(), across.weights.data(), across.taps, outputs,
                             lines_[static_cast<std::size_t>(i)].data());
    }
    const bool grey = source.count == 1;
    kernels().merge_colours(lines_[0].data(), grey ? nullptr : lines_[1].data(),
                            grey ? nullptr : lines_[2].data(), out_width,
                            out + std::ptrdiff_t{y} * out_width * 3);
  }
}

}  // namespace redline::data
