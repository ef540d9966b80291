// CIFAR-10 and CIFAR-100 in their authors' binary form, read in place: cifar-10-batches-bin with
// data_batch_1.bin to data_batch_5.bin and test_batch.bin, or cifar-100-binary with train.bin and test.bin
// (the fine labels are used). The test images are the validation images. Pixels are passed on as PNG.
#pragma once

#include <filesystem>
#include <memory>

#include "data/sources/record_source.h"

namespace redline::data {

// Whether path, or the folder in it that the archive unpacks to, has such files.
bool is_cifar(const std::filesystem::path& path);
bool cifar_has_split(const std::filesystem::path& path, Split split);

// Class names come from batches.meta.txt or fine_label_names.txt, otherwise they are numbers. Throws
// DataError for a file that is not a whole number of records, or a label without a class.
std::unique_ptr<RecordSource> open_cifar(const std::filesystem::path& path, Split split,
                                         const SourceOptions& options);

}  // namespace redline::data
