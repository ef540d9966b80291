#include "data/prepare/show.h"

#include <algorithm>
#include <set>

#include "base/atomic_file.h"
#include "base/build_info.h"
#include "base/error.h"
#include "data/images/encode.h"
#include "data/prepare/page_text.h"

namespace redline::data {
namespace {

std::string caption(const Batch& batch, int row, const std::vector<std::string>& classes) {
  const auto name = [&](std::int32_t label) {
    return fmt::format("{} <small>({})</small>", escaped(classes.at(static_cast<std::size_t>(label))), label);
  };
  const std::int32_t first = batch.labels[row];
  if (!batch.other_labels || batch.other_labels[row] < 0) return name(first);
  const float weight = batch.label_weights[row];
  return fmt::format("{:.0f}% {} + {:.0f}% {}", 100 * weight, name(first), 100 * (1 - weight),
                     name(batch.other_labels[row]));
}

}  // namespace

ShownBatch write_sample_page(std::shared_ptr<const RecordSource> source, const ShowOptions& options) {
  const std::vector<std::string>& classes = source->classes();
  LoaderOptions loading = options.loader;
  loading.decoder = nullptr;
  // Training skips a batch that would be short.
  loading.batch_size = static_cast<int>(std::min<std::int64_t>(loading.batch_size, source->count()));
  Loader loader(source, loading);
  loader.start_epoch(options.epoch);
  Batch batch;
  if (!loader.next(batch)) throw InternalError("an epoch without a batch");
  const int size = loading.transform.size;
  ShownBatch shown;
  std::set<std::int32_t> labels;
  std::string figures;
  for (int row = 0; row < loading.batch_size; ++row) {
    if (batch.labels[row] < 0) continue;
    const std::uint8_t* image = batch.images + static_cast<std::ptrdiff_t>(row) * size * size * 3;
    figures += fmt::format(
        "<figure><img alt=\"\" src=\"data:image/png;base64,{}\"><figcaption>{}</figcaption></figure>\n",
        base64(encode_png(image, size, size)), caption(batch, row, classes));
    labels.insert(batch.labels[row]);
    ++shown.images;
  }
  shown.classes = static_cast<int>(labels.size());
  shown.bad = loader.bad_samples();
  std::string page = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"generator\" "
      "content=\"{2}\">"
      "<title>{0}</title><style>{1}</style></head>\n<body><h1>{0}</h1>\n",
      escaped(options.title), kImagePageStyle, program_text());
  page += fmt::format(
      "<p>The first batch of epoch {}, as the network sees it: {} images of {} × {} pixels, {} of {} "
      "classes. "
      "A number in brackets is the label.</p>\n<main>\n{}</main></body></html>\n",
      options.epoch, shown.images, size, size, shown.classes, classes.size(), figures);
  write_file_atomically(options.page, page, Sync::no);
  return shown;
}

}  // namespace redline::data
