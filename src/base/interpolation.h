// How an image is resized, wherever that happens: by the loader's threads or on a GPU.
#pragma once

namespace redline {

enum class Interpolation { bilinear, bicubic };

}  // namespace redline
