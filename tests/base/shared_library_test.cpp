#include "base/shared_library.h"

#include <gtest/gtest.h>

namespace redline {
namespace {

TEST(SharedLibrary, OneThatIsNotThereSaysWhy) {
  const SharedLibrary library("libredline-none.so.1");
  EXPECT_FALSE(library.loaded());
  EXPECT_NE(library.error().find("libredline-none.so.1"), std::string::npos) << library.error();
  double (*const function)(double) = library.find("cos");
  EXPECT_EQ(function, nullptr);
  EXPECT_THROW(library.need("cos", "install it"), UnavailableError);
}

TEST(SharedLibrary, NamesTheFunctionThatItLacksAndTheRemedy) {
  const SharedLibrary library("libm.so.6");
  ASSERT_TRUE(library.loaded()) << library.error();
  double (*const function)(double) = library.need("cos", "install it");
  EXPECT_EQ(function(0.0), 1.0);
  double (*const same)(double) = library.find("cos");
  EXPECT_EQ(same, function);
  try {
    library.need("cosine", "install a newer one");
    FAIL() << "a function that is not there was found";
  } catch (const UnavailableError& error) {
    EXPECT_STREQ(error.what(), "libm.so.6 has no cosine: install a newer one");
  }
}

}  // namespace
}  // namespace redline
