// `redline data prepare tiny-imagenet`: makes an image folder from Tiny ImageNet's archive or folder.
#pragma once

#include "data/prepare/unpack.h"
#include "data/progress.h"

namespace redline::data {

// options.source is the zip or the unpacked folder (or the folder that holds it). Writes
//     target/train/<wnid>/<image>.JPEG   target/val/<wnid>/<image>.JPEG
// and beside the images <wnid>_boxes.txt, with the lines "file, left, top, right, bottom" that train is
// shipped with; val's come from val_annotations.txt. A zip is read in place. Throws as unpack_to_folders
// does.
UnpackResult prepare_tiny_imagenet(const UnpackOptions& options, const Progress& progress = {});

}  // namespace redline::data
