// WebP by libwebp; of an animation the first frame.
#include <memory>

#include <webp/decode.h>
#include <webp/demux.h>

#include "base/error.h"
#include "data/images/codecs.h"

namespace redline::data {
namespace {

WebPBitstreamFeatures features_of(Bytes bytes) {
  WebPBitstreamFeatures features;
  if (WebPGetFeatures(bytes.data(), bytes.size(), &features) != VP8_STATUS_OK)
    throw DataError("WebP: damaged header");
  return features;
}

void decode_animation(Bytes bytes, const ImageInfo& info, std::vector<std::uint8_t>& pixels) {
  WebPAnimDecoderOptions options;
  if (!WebPAnimDecoderOptionsInit(&options)) throw DataError("WebP: libwebp of another version");
  options.color_mode = MODE_RGBA;
  const WebPData data = {bytes.data(), bytes.size()};
  const std::unique_ptr<WebPAnimDecoder, decltype(&WebPAnimDecoderDelete)> decoder(
      WebPAnimDecoderNew(&data, &options), WebPAnimDecoderDelete);
  std::uint8_t* frame = nullptr;
  int time = 0;
  WebPAnimInfo canvas;
  if (!decoder || !WebPAnimDecoderGetInfo(decoder.get(), &canvas) ||
      canvas.canvas_width != static_cast<std::uint32_t>(info.width) ||
      canvas.canvas_height != static_cast<std::uint32_t>(info.height) ||
      !WebPAnimDecoderGetNext(decoder.get(), &frame, &time))
    throw DataError("WebP: damaged or cut off");
  std::uint8_t* to = room_for(info, 3, pixels);
  const std::size_t count = static_cast<std::size_t>(info.width) * static_cast<std::size_t>(info.height);
  for (std::size_t i = 0; i < count; ++i)
    for (std::size_t channel = 0; channel < 3; ++channel) to[3 * i + channel] = frame[4 * i + channel];
}

}  // namespace

ImageInfo open_webp(Bytes bytes) {
  const WebPBitstreamFeatures features = features_of(bytes);
  return {ImageFormat::webp, features.width, features.height, features.has_alpha ? 4 : 3};
}

void decode_webp(Bytes bytes, const ImageInfo& info, std::vector<std::uint8_t>& pixels) {
  if (features_of(bytes).has_animation) return decode_animation(bytes, info, pixels);
  std::uint8_t* rgb = room_for(info, 3, pixels);
  const std::size_t row = static_cast<std::size_t>(info.width) * 3;
  if (WebPDecodeRGBInto(bytes.data(), bytes.size(), rgb, row * static_cast<std::size_t>(info.height),
                        static_cast<int>(row)) == nullptr)
    throw DataError("WebP: damaged or cut off");
}

}  // namespace redline::data
