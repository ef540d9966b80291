#include "graph/graph.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace redline::graph {
namespace {

TEST(Shape, CountsAndPrints) {
  const Shape shape{32, 64, 56, 7};
  EXPECT_EQ(shape.rank(), 4);
  EXPECT_EQ(shape.elements(), 32 * 64 * 56 * 7);
  EXPECT_EQ(shape.text(), "32x64x56x7");
  EXPECT_EQ((Shape{5}).elements(), 5);
  EXPECT_NE((Shape{5}), (Shape{5, 1})) << "rank is part of a shape";
  EXPECT_THROW((Shape{2, 0}), InternalError);
}

TEST(DType, NamesParseBack) {
  for (DType dtype : {DType::f32, DType::bf16, DType::f16}) EXPECT_EQ(parse_dtype(name_of(dtype)), dtype);
  EXPECT_THROW(parse_dtype("float"), UsageError);
  EXPECT_THROW(parse_dtype("u8"), UsageError) << "not a type to train in";
}

TEST(TensorKind, StateIsWhatOutlivesAStep) {
  for (TensorKind kind : {TensorKind::parameter, TensorKind::statistic, TensorKind::momentum,
                          TensorKind::average, TensorKind::scaler}) {
    EXPECT_TRUE(is_persistent(kind)) << name_of(kind);
  }
  for (TensorKind kind :
       {TensorKind::input, TensorKind::gradient, TensorKind::activation, TensorKind::metric}) {
    EXPECT_FALSE(is_persistent(kind)) << name_of(kind);
  }
}

TEST(WindowOutput, ByHand) {
  EXPECT_EQ(window_output(224, 7, 2, 3, "stem"), 112);
  EXPECT_EQ(window_output(112, 3, 2, 1, "pool"), 56);
  EXPECT_EQ(window_output(5, 3, 1, 0, "conv"), 3);
  EXPECT_EQ(window_output(7, 1, 2, 0, "conv"), 4);
  EXPECT_EQ(window_output(1, 3, 2, 1, "conv"), 1);
}

TEST(WindowOutput, NamesWhatDoesNotFit) {
  try {
    window_output(2, 7, 2, 2, "layer9.conv");
    FAIL() << "a window of 7 in 6 pixels";
  } catch (const UsageError& e) {
    EXPECT_NE(std::string(e.what()).find("layer9.conv"), std::string::npos) << e.what();
  }
}

class BuilderTest : public testing::Test {
 protected:
  const Shape& shape(TensorId id) const { return graph_.tensor(id).shape; }

  Graph graph_;
  Builder builder_{graph_, DType::bf16, true};
};

TEST_F(BuilderTest, InfersShapes) {
  const TensorId images = builder_.input("images", {2, 3, 17, 33}, DType::u8);
  const TensorId x = builder_.normalize_image(images, {});
  const TensorId y = builder_.conv("conv", x, 40, 3, {2, 1});
  EXPECT_EQ(shape(y), (Shape{2, 40, 9, 17}));
  EXPECT_EQ(shape(graph_.find("conv.weight")), (Shape{40, 3, 3, 3}));
  const TensorId pooled =
      builder_.max_pool("pool", builder_.relu("relu", builder_.batch_norm("bn", y)), {3, 2, 1});
  EXPECT_EQ(shape(pooled), (Shape{2, 40, 5, 9}));
  const TensorId features = builder_.avg_pool("avg", pooled);
  EXPECT_EQ(shape(features), (Shape{2, 40}));
  const TensorId logits = builder_.linear("fc", features, 7);
  EXPECT_EQ(shape(logits), (Shape{2, 7}));
  EXPECT_EQ(shape(graph_.find("fc.weight")), (Shape{7, 40}));
}

TEST_F(BuilderTest, ActivationsAreNarrowAndTheRestIsNot) {
  const TensorId x = builder_.normalize_image(builder_.input("images", {1, 3, 8, 8}, DType::u8), {});
  const TensorId y = builder_.batch_norm("bn", builder_.conv("conv", x, 4, 3, {1, 1}));
  const TensorId logits = builder_.linear("fc", builder_.avg_pool("avg", y), 3);
  EXPECT_EQ(graph_.tensor(x).dtype, DType::bf16);
  EXPECT_EQ(graph_.tensor(y).dtype, DType::bf16);
  EXPECT_EQ(graph_.tensor(logits).dtype, DType::f32);
  for (TensorKind kind : {TensorKind::parameter, TensorKind::statistic}) {
    for (TensorId id : graph_.of_kind(kind)) EXPECT_EQ(graph_.tensor(id).dtype, DType::f32);
  }
  EXPECT_EQ(graph_.tensor(graph_.find("bn.saved")).dtype, DType::f32);
}

TEST_F(BuilderTest, RefusesWhatCannotBe) {
  const TensorId a = builder_.normalize_image(builder_.input("images", {1, 3, 4, 4}, DType::u8), {});
  const TensorId b = builder_.conv("conv", a, 3, 3, {2, 1});
  EXPECT_THROW(builder_.add("add", a, b), InternalError) << "shapes differ";
  EXPECT_THROW(builder_.conv("big", a, 8, 7, {1, 0}), UsageError) << "the window does not fit";
  EXPECT_THROW(builder_.conv("groups", a, 8, 1, {1, 0, 2}), InternalError) << "two groups of three channels";
  EXPECT_THROW(graph_.add_op({OpKind::relu, "x", Phase::forward, {99}, {a}, {}}), InternalError);
  EXPECT_EQ(graph_.find("nothing"), kNone);
}

TEST_F(BuilderTest, CountsMultiplyAddsAsTwo) {
  const TensorId x = builder_.normalize_image(builder_.input("images", {2, 3, 5, 5}, DType::u8), {});
  builder_.conv("conv", x, 4, 3, {1, 1});
  EXPECT_EQ(flops(graph_, graph_.ops()[1]), 2.0 * 2 * 4 * 25 * 27);
  EXPECT_EQ(flops(graph_, graph_.ops()[0]), 0.0);
}

}  // namespace
}  // namespace redline::graph
