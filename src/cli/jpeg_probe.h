// Whether a GPU here decodes JPEGs for training.
#pragma once

#include <string>

namespace redline::cli {

struct JpegProbe {
  std::string decoder;  // "nvJPEG 13.0, 8 hardware engines"; empty where there is none
  std::string problem;  // why there is none, and what to do
};

// Loads the CUDA backend as training would.
JpegProbe probe_jpeg_decoder();

}  // namespace redline::cli
