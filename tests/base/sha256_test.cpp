#include "base/sha256.h"

#include <gtest/gtest.h>

namespace redline {
namespace {

// FIPS 180-4's examples, and their lengths around the ends of blocks.
TEST(Sha256, GivesThePublishedDigests) {
  EXPECT_EQ(hex(sha256("")), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hex(sha256("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hex(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(hex(sha256(std::string(1'000'000, 'a'))),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, IsTheSameInPieces) {
  std::string text;
  for (int i = 0; i < 300; ++i) text += static_cast<char>(i * 7);
  for (std::size_t length = 0; length <= text.size(); ++length) {
    Sha256 sum;
    for (std::size_t i = 0; i < length; i += 13)
      sum.update(std::string_view(text).substr(i, std::min<std::size_t>(13, length - i)));
    EXPECT_EQ(sum.finish(), sha256(std::string_view(text).substr(0, length))) << length;
  }
}

// RFC 4231, cases 1, 2 and 6 (a key longer than a block).
TEST(Sha256, GivesThePublishedCodes) {
  EXPECT_EQ(hex(hmac_sha256(std::string(20, '\x0b'), "Hi There")),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(hex(hmac_sha256("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(
      hex(hmac_sha256(std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First")),
      "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(Sha256, SecretsAreComparedWhole) {
  EXPECT_TRUE(same_secret("", ""));
  EXPECT_TRUE(same_secret("secret", "secret"));
  EXPECT_FALSE(same_secret("secret", "secreT"));
  EXPECT_FALSE(same_secret("secret", "Secret"));
  EXPECT_FALSE(same_secret("secret", "secre"));
  EXPECT_FALSE(same_secret("", "x"));
  EXPECT_NE(random_bytes(32), random_bytes(32));
  EXPECT_EQ(random_bytes(300).size(), 300U);
}

}  // namespace
}  // namespace redline
