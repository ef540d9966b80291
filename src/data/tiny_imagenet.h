// `redline data prepare tiny-imagenet`: from the archive or folder that Tiny ImageNet is shipped as to an
// image folder.
#pragma once

#include "data/progress.h"
#include "data/unpack.h"

namespace redline::data {

// options.source is the zip or the unpacked folder (or the folder that holds it). Writes
//     target/train/<wnid>/<image>.JPEG   target/val/<wnid>/<image>.JPEG
// and beside the images <wnid>_boxes.txt, with the lines "file, left, top, right, bottom" that train is
// shipped with; val's come from val_annotations.txt. A zip is read in place. Throws as unpack_to_folders
// does.
UnpackResult prepare_tiny_imagenet(const UnpackOptions& options, const Progress& progress = {});

}  // namespace redline::data
