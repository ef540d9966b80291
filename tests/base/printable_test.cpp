#include "base/printable.h"

#include <gtest/gtest.h>

namespace redline {
namespace {

TEST(Printable, OrdinaryTextStaysAsItIs) {
  EXPECT_EQ(printable("n01440764/träumerei 東京 🐟.JPEG"), "n01440764/träumerei 東京 🐟.JPEG");
  EXPECT_EQ(printable(""), "");
}

TEST(Printable, WhatSteersATerminalIsEscaped) {
  EXPECT_EQ(printable("a\x1b[2Jb"), "a\\x1b[2Jb");
  EXPECT_EQ(printable("\x07\x7f\r\t"), "\\x07\\x7f\\x0d\\x09");
  EXPECT_EQ(printable("\xc2\x9b"
                      "31m"),
            "\\xc2\\x9b31m");                                       // CSI as one character
  EXPECT_EQ(printable("\u202egpj.exe"), "\\xe2\\x80\\xaegpj.exe");  // right to left
}

TEST(Printable, LineFeedsStayOnlyWhereAskedFor) {
  EXPECT_EQ(printable("a\nb"), "a\\x0ab");
  EXPECT_EQ(printable("a\nb", true), "a\nb");
}

TEST(Printable, WhatIsNotUtf8IsEscapedByteByByte) {
  EXPECT_EQ(printable("caf\xe9"), "caf\\xe9");
  EXPECT_EQ(printable("\xc0\x9b"), "\\xc0\\x9b");           // overlong
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80");  // a surrogate
  EXPECT_EQ(printable("\xe6\x9d"), "\\xe6\\x9d");           // cut off
}

}  // namespace
}  // namespace redline
