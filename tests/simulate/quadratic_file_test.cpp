#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <unistd.h>

#include "starling/base/error.h"
#include "starling/simulate/objective_registry.h"

namespace starling::simulate {
namespace {

using testing::HasSubstr;

class QuadraticFileTest : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }

  ObjectivePtr read(const std::string& text) {
    std::ofstream(path_) << text;
    return read_quadratic(path_);
  }

  std::string refusal(const std::string& text) {
    try {
      read(text);
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  }

  std::filesystem::path path_ = testing::TempDir() + "quadratic_" + std::to_string(getpid()) + ".json";
};

TEST_F(QuadraticFileTest, HasTheValuesOfTheFile) {
  const ObjectivePtr objective = read(R"({"a": [[1, 2], [3, 0]], "b": [[0.5, -1], [2, 7]], "x0": [4, 0.1]})");
  EXPECT_EQ(objective->nodes(), 2);
  ASSERT_EQ(objective->dim(), 2U);
  std::vector<double> x(2), out(2);
  objective->start(1, x);
  EXPECT_EQ(x, (std::vector<double>{4, 0.1}));
  objective->gradient(0, 0, std::span<const double>(x), std::span<double>(out));
  EXPECT_EQ(out, (std::vector<double>{3.5, 2 * 1.1}));
  objective->gradient(1, 17, std::span<const double>(x), std::span<double>(out));
  EXPECT_EQ(out, (std::vector<double>{6, 0}));
  // (1 * 3.5^2 + 2 * 1.1^2 + 3 * 2^2) / 2 / 2
  EXPECT_DOUBLE_EQ(objective->value(x), (12.25 + 2.42 + 12) / 4);
  EXPECT_EQ(objective->minimizer(), (std::vector<double>{6.5 / 4, -1}));
}

TEST_F(QuadraticFileTest, StartsAtZeroByDefaultAndHasNoMinimumForASaddle) {
  const ObjectivePtr objective = read(R"({"a": [[1], [-2]], "b": [[3], [4]]})");
  std::vector<double> x(1, 9.0);
  objective->start(0, x);
  EXPECT_EQ(x[0], 0);
  EXPECT_FALSE(objective->minimizer());
  EXPECT_FALSE(objective->least_value());
}

TEST_F(QuadraticFileTest, ErrorsNameRowAndWhatIsValid) {
  const std::string file = path_.string();
  EXPECT_THAT(refusal("{"), HasSubstr(file + ": is not JSON"));
  EXPECT_THAT(refusal("[1]"), HasSubstr("must hold {\"a\""));
  EXPECT_THAT(refusal(R"({"a": [[1]], "c": []})"), HasSubstr("\"c\" is not known; valid are a, b and x0"));
  EXPECT_THAT(refusal(R"({"a": [[1]]})"), HasSubstr("\"b\" must be a list of rows, one per node"));
  EXPECT_THAT(refusal(R"({"a": [], "b": []})"), HasSubstr("\"a\" must be a list of rows"));
  EXPECT_THAT(refusal(R"({"a": [[1, 2], [3]], "b": [[1, 2], [3, 4]]})"),
              HasSubstr("\"a\", row 1 (node 1) has 1 numbers; valid is 2"));
  EXPECT_THAT(refusal(R"({"a": [[1, 2]], "b": [[1, "x"]]})"),
              HasSubstr("\"b\", row 0 (node 0), coordinate 1: \"x\" is not a number"));
  EXPECT_THAT(refusal(R"({"a": [[1], [2]], "b": [[1]]})"), HasSubstr("\"a\" has 2 rows and \"b\" has 1"));
  EXPECT_THAT(refusal(R"({"a": [[1]], "b": [[1]], "x0": [1, 2]})"),
              HasSubstr("\"x0\" has 2 numbers; valid is 1"));
  EXPECT_THAT(refusal(R"({"a": [[]], "b": [[]]})"), HasSubstr("row 0 (node 0) must be a list of numbers"));
  std::filesystem::remove(path_);
  EXPECT_THROW(read_quadratic(path_), Error);
}

}  // namespace
}  // namespace starling::simulate
