#include "data/images/decode.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "data/pictures.h"

namespace redline::data {
namespace {

// The decoders are the same library at most a version apart: equal but for rounding of the colour conversion.
TEST(Decode, JpegsAsPillowDoes) {
  for (const char* name : {"420", "422", "444", "progressive", "grey", "cmyk"}) {
    const Picture ours = decoded(bytes_of(golden(std::string(name) + ".jpg")));
    const Picture theirs = decoded(bytes_of(golden(std::string(name) + ".png")));
    ASSERT_EQ(ours.width, theirs.width) << name;
    const Difference difference = compare(ours.rgb, theirs.rgb);
    EXPECT_LE(difference.mean, 0.5) << name;
    EXPECT_LE(difference.most, 3) << name;
  }
}

TEST(Decode, PngsAsPillowDoes) {
  EXPECT_EQ(decoded(bytes_of(golden("palette.png"))).rgb, decoded(bytes_of(golden("palette_rgb.png"))).rgb);
  EXPECT_EQ(decoded(bytes_of(golden("alpha.png"))).rgb, decoded(bytes_of(golden("alpha_rgb.png"))).rgb);
}

TEST(Decode, PngIsLossless) {
  const Picture picture = gradient(33, 21);
  EXPECT_EQ(decoded(encode_png(picture.rgb.data(), 33, 21)).rgb, picture.rgb);
}

TEST(Decode, InfoTellsSizeFormatAndChannels) {
  Decoder decoder;
  const std::vector<std::uint8_t> cmyk = bytes_of(golden("cmyk.jpg")), alpha = bytes_of(golden("alpha.png"));
  const ImageInfo a = decoder.open(cmyk);
  EXPECT_EQ(a.format, ImageFormat::jpeg);
  EXPECT_EQ(a.width, 150);
  EXPECT_EQ(a.height, 109);
  EXPECT_EQ(a.channels, 4);
  const ImageInfo b = decoder.open(alpha);
  EXPECT_EQ(b.format, ImageFormat::png);
  EXPECT_EQ(b.width, 40);
  EXPECT_EQ(b.channels, 4);
}

// A region decoded alone must be what the whole image has there, at every scale and with every chroma layout.
TEST(Decode, ARegionEqualsThatPartOfTheWhole) {
  const Rect regions[] = {{0, 0, 150, 109}, {0, 0, 20, 20},   {130, 90, 20, 19}, {33, 17, 64, 48},
                          {16, 16, 16, 16}, {149, 108, 1, 1}, {0, 50, 150, 3}};
  for (const char* name : {"420.jpg", "422.jpg", "444.jpg", "progressive.jpg", "grey.jpg", "cmyk.jpg"}) {
    const std::vector<std::uint8_t> bytes = bytes_of(golden(name));
    for (const int shrink : {1, 2, 4, 8}) {
      Decoder whole_decoder, decoder;
      whole_decoder.open(bytes);
      const Pixels whole = whole_decoder.decode({0, 0, 150, 109}, shrink);
      ASSERT_EQ(whole.width, (150 + shrink - 1) / shrink);
      for (const Rect& region : regions) {
        decoder.open(bytes);
        const Pixels part = decoder.decode(region, shrink);
        EXPECT_EQ(part.shrink, shrink);
        const int x0 = region.x / shrink, x1 = (region.x + region.width + shrink - 1) / shrink;
        const int y0 = region.y / shrink, y1 = (region.y + region.height + shrink - 1) / shrink;
        ASSERT_LE(part.origin_x, x0);
        ASSERT_GE(part.origin_x + part.width, x1);
        ASSERT_LE(part.origin_y, y0);
        ASSERT_GE(part.origin_y + part.height, y1);
        for (int y = y0; y < y1; ++y)
          for (int x = x0 * 3; x < x1 * 3; ++x)
            ASSERT_EQ(part.data[(y - part.origin_y) * part.stride + x - part.origin_x * 3],
                      whole.data[y * whole.stride + x])
                << name << " 1/" << shrink << " region " << region.x << "," << region.y << " at " << x << ","
                << y;
      }
    }
  }
}

TEST(Decode, MapPutsABoxIntoTheDecodedPart) {
  Decoder decoder;
  const std::vector<std::uint8_t> bytes = bytes_of(golden("420.jpg"));
  decoder.open(bytes);
  const Pixels part = decoder.decode({80, 60, 40, 40}, 2);
  const Box box = part.map({80, 60, 40, 40});
  EXPECT_DOUBLE_EQ(box.x, 40 - part.origin_x);
  EXPECT_DOUBLE_EQ(box.y, 30 - part.origin_y);
  EXPECT_DOUBLE_EQ(box.width, 20);
}

TEST(Decode, ShrinkKeepsAtLeastTheTarget) {
  EXPECT_EQ(choose_shrink({0, 0, 447, 500}, 224, 224), 1);
  EXPECT_EQ(choose_shrink({0, 0, 448, 448}, 224, 224), 2);
  EXPECT_EQ(choose_shrink({0, 0, 4000, 896}, 224, 224), 4);
  EXPECT_EQ(choose_shrink({0, 0, 1792, 1792}, 224, 224), 8);
  EXPECT_EQ(choose_shrink({0, 0, 10, 10}, 224, 224), 1);
}

// Every prefix of a file is damaged input; none may pass as whole, crash or leak (the sanitizer runs watch
// that).
TEST(Decode, EveryTruncationIsRefused) {
  for (const char* name : {"420.jpg", "progressive.jpg", "cmyk.jpg", "palette.png"}) {
    const std::vector<std::uint8_t> whole = bytes_of(golden(name));
    Decoder decoder;
    for (std::size_t size = 0; size + 16 < whole.size(); size += 1 + size / 40) {
      const std::vector<std::uint8_t> cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
      EXPECT_THROW(
          {
            decoder.open(cut);
            decoder.decode();
          },
          DataError)
          << name << " cut to " << size;
    }
    decoder.open(whole);  // and goes on with the next image
    EXPECT_EQ(copy_of(decoder.decode()).rgb, decoded(whole).rgb);
  }
}

// Even where a crop needs only what is left of the file, and where the rest ends with another image's end.
TEST(Decode, ACutFileIsRefusedWhateverPartIsAsked) {
  const std::vector<std::uint8_t> whole = bytes_of(golden("420.jpg"));
  Decoder decoder;
  std::vector<std::uint8_t> cut(whole.begin(), whole.end() - 2);  // all but the end marker
  decoder.open(cut);
  EXPECT_NE(message_of<DataError>([&] {
              decoder.decode({0, 0, 16, 16});
            }).find("cut off"),
            std::string::npos);
  cut.insert(cut.end(), {0xff, 0xe1, 0x00, 0x10, 0xff, 0xd9});  // a segment of 16 bytes, cut off itself
  decoder.open(cut);
  EXPECT_THROW(decoder.decode({0, 0, 16, 16}), DataError);
}

TEST(Decode, BytesAfterTheEndAreLeftAlone) {
  std::vector<std::uint8_t> bytes = bytes_of(golden("progressive.jpg"));
  const Picture picture = decoded(bytes);
  bytes.insert(bytes.end(), {0xff, 0xff, 'j', 'u', 'n', 'k', 0xff});
  EXPECT_EQ(decoded(bytes).rgb, picture.rgb);
}

TEST(Decode, FlippedBytesNeverCrash) {
  for (const char* name : {"420.jpg", "progressive.jpg", "palette.png"}) {
    const std::vector<std::uint8_t> whole = bytes_of(golden(name));
    Decoder decoder;
    Random random(7);
    int refused = 0;
    for (int i = 0; i < 300; ++i) {
      std::vector<std::uint8_t> damaged = whole;
      for (int k = 0; k < 3; ++k)
        damaged[random.below(damaged.size())] = static_cast<std::uint8_t>(random.below(256));
      try {
        const ImageInfo info = decoder.open(damaged);
        const Rect all{0, 0, info.width, info.height};
        const Pixels pixels = decoder.decode(all, 1 << random.below(4));
        EXPECT_GT(pixels.width, 0);
      } catch (const DataError&) {
        ++refused;
      }
    }
    EXPECT_GT(refused, 0) << name;
  }
}

TEST(Decode, SaysWhatIsWrong) {
  Decoder decoder({1000});
  const std::vector<std::uint8_t> empty, text{'h', 'e', 'l', 'l', 'o'}, large = gradient_jpeg(64, 64);
  EXPECT_NE(message_of<DataError>([&] { decoder.open(empty); }).find("empty"), std::string::npos);
  EXPECT_NE(message_of<DataError>([&] { decoder.open(text); }).find("not an image"), std::string::npos);
  EXPECT_NE(
      message_of<DataError>([&] { decoder.open(large); }).find("64 × 64 pixels, more than the limit of 1000"),
      std::string::npos);
}

TEST(Decode, TwelveBitJpegIsUnsupported) {
  std::vector<std::uint8_t> bytes = gradient_jpeg(32, 32);
  for (std::size_t i = 0; i + 4 < bytes.size(); ++i)
    if (bytes[i] == 0xff && bytes[i + 1] == 0xc0) bytes[i + 4] = 12;  // the precision in the frame header
  Decoder decoder;
  const std::string message = message_of<DataError>([&] {
    decoder.open(bytes);
    decoder.decode();
  });
  EXPECT_NE(message.find("12"), std::string::npos) << message;
}

TEST(Decode, DamageThatALibraryRepairsIsAWarning) {
  std::vector<std::uint8_t> bytes = gradient_jpeg(64, 64);
  bytes.insert(bytes.end() - 2, 40, 0x55);  // before the end marker
  Decoder decoder;
  decoder.open(bytes);
  EXPECT_EQ(copy_of(decoder.decode()).rgb, decoded(gradient_jpeg(64, 64)).rgb);
  EXPECT_NE(decoder.warning().find("extraneous"), std::string::npos) << decoder.warning();
}

}  // namespace
}  // namespace redline::data
