#include "starling/base/parameters.h"

#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "starling/base/error.h"

namespace starling {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const std::vector<Parameter>& declared() {
  static const std::vector<Parameter> parameters = {
      {"file", "", "where it lies"}, {"k", "3", "peers"},           {"p", "0.5", "probability"},
      {"rows", "auto", "a divisor"}, {"mirror", "no", "yes or no"}, {"order", "cyclic", "of the hops"},
      {"members", "0", "ranks"},     {"seed", "0", "the draws"}};
  return parameters;
}

Parameters read(const std::string& text) {
  return {parse_spec(text), declared()};
}

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const InvalidArgument& error) {
    return error.what();
  } catch (const std::exception& error) {
    return std::string("not InvalidArgument: ") + error.what();
  }
  return "";
}

std::string error_of(const std::string& text) {
  return error_of([&] { read(text); });
}

// Returns the error message when `getter` reads the parameter in `text`.
template <typename Getter>
std::string error_of(const std::string& text, Getter getter) {
  return error_of([&] { getter(read(text)); });
}

constexpr const char* kValid =
    "valid are file=, k=3, p=0.5, rows=auto, mirror=no, order=cyclic, members=0, seed=0";

TEST(ParametersTest, PositionsFollowTheDeclaration) {
  const Parameters parameters = read("demo(a.csv, 7, 0.25)");
  EXPECT_EQ(parameters.owner(), "demo");
  EXPECT_EQ(parameters.text("file"), "a.csv");
  EXPECT_EQ(parameters.integer("k", 1, 10), 7);
  EXPECT_EQ(parameters.number("p", 0, 1), 0.25);
  EXPECT_TRUE(parameters.given("k"));
  EXPECT_FALSE(parameters.given("mirror"));
  EXPECT_FALSE(parameters.yes("mirror"));
}

TEST(ParametersTest, NamesGoInAnyOrderAndMixWithPositions) {
  const Parameters parameters = read("demo(order=random, a.csv, mirror=yes, 9)");
  EXPECT_EQ(parameters.text("file"), "a.csv");
  EXPECT_EQ(parameters.integer("k", 1, 10), 9);
  EXPECT_TRUE(parameters.yes("mirror"));
  EXPECT_EQ(parameters.choice("order", {"cyclic", "random"}), "random");
  EXPECT_EQ(parameters.seed(), 0u);
}

TEST(ParametersTest, MistakesOfTheCallListWhatIsValid) {
  EXPECT_EQ(error_of("demo"), std::string("demo needs file= (where it lies); ") + kValid);
  EXPECT_EQ(error_of("demo(k=2)"), std::string("demo needs file= (where it lies); ") + kValid);
  EXPECT_EQ(error_of("demo(a, size=2)"), std::string("demo has no parameter 'size'; ") + kValid);
  EXPECT_EQ(error_of("demo(a, flie=b)"),
            std::string("demo has no parameter 'flie' (did you mean file?); ") + kValid);
  EXPECT_EQ(error_of("demo(a,1,1,1,no,cyclic,0,0,1)"), std::string("demo has too many arguments; ") + kValid);
  EXPECT_EQ(error_of("demo(a, file=b)"), "demo is given 'file' twice");
  EXPECT_EQ(error_of("demo(a, k=1, k=1)"), "demo is given 'k' twice");
  EXPECT_EQ(error_of("demo(file=a, b)"),
            "demo is given 'file' twice");  // positions do not skip what was named
  EXPECT_EQ(error_of([] { Parameters(parse_spec("ring(k=1)"), {}); }),
            "ring has no parameter 'k'; it takes none");
  EXPECT_EQ(error_of([] { Parameters(parse_spec("ring(1)"), {}); }),
            "ring has too many arguments; it takes none");
}

TEST(ParametersTest, Integers) {
  const auto k = [](const Parameters& parameters) { return parameters.integer("k", 1, 10); };
  EXPECT_EQ(k(read("demo(a,k=1)")), 1);
  EXPECT_EQ(k(read("demo(a,k=10)")), 10);
  EXPECT_EQ(k(read("demo(a)")), 3);
  for (const std::string bad :
       {"0", "11", "-1", "2.0", "1e1", "two", "\"\"", "99999999999999999999", "[1]", "1(2)", "+1", "1k"})
    EXPECT_EQ(error_of("demo(a,k=" + bad + ")", k),
              "demo: k=" + bad + " is not valid; expected a whole number from 1 to 10");
}

TEST(ParametersTest, Numbers) {
  const auto p = [](const Parameters& parameters) { return parameters.number("p", 0, 1); };
  EXPECT_EQ(p(read("demo(a,p=1e-3)")), 1e-3);
  EXPECT_EQ(p(read("demo(a,p=0)")), 0);
  EXPECT_EQ(p(read("demo(a,p=1)")), 1);
  EXPECT_EQ(p(read("demo(a)")), 0.5);
  for (const std::string bad : {"-0.1", "1.5", "nan", "inf", "half", "1/2", "[0.5]", "0.5(1)", "0.5x"})
    EXPECT_EQ(error_of("demo(a,p=" + bad + ")", p),
              "demo: p=" + bad + " is not valid; expected a number from 0 to 1");
}

TEST(ParametersTest, OptionalOnesMayBeAbsentOrAuto) {
  const auto rows = [](const Parameters& parameters) { return parameters.optional_integer("rows", 1, 9); };
  EXPECT_EQ(rows(read("demo(a)")), std::nullopt);
  // "auto" is the default that `starling topologies` lists
  EXPECT_EQ(rows(read("demo(a,rows=auto)")), std::nullopt);
  EXPECT_EQ(rows(read("demo(a,rows=3)")), 3);
  EXPECT_EQ(error_of("demo(a,rows=10)", rows),
            "demo: rows=10 is not valid; expected a whole number from 1 to 9");
  EXPECT_THAT(error_of("demo(a,rows=[auto])", rows), HasSubstr("rows=[auto] is not valid"));
  const auto number = [](const Parameters& parameters) { return parameters.optional_number("rows", 0, 2.5); };
  EXPECT_EQ(number(read("demo(a)")), std::nullopt);
  EXPECT_EQ(number(read("demo(a,rows=auto)")), std::nullopt);
  EXPECT_EQ(number(read("demo(a,rows=2.5)")), 2.5);
  EXPECT_EQ(error_of("demo(a,rows=3)", number), "demo: rows=3 is not valid; expected a number from 0 to 2.5");
}

TEST(ParametersTest, Seeds) {
  const auto seed = [](const Parameters& parameters) { return parameters.seed(); };
  EXPECT_EQ(seed(read("demo(a,seed=18446744073709551615)")), 18446744073709551615u);
  for (const std::string bad : {"-1", "18446744073709551616", "x", "1.5", "[1]"})
    EXPECT_EQ(error_of("demo(a,seed=" + bad + ")", seed),
              "demo: seed=" + bad + " is not valid; expected a whole number from 0 to 2^64-1");
}

TEST(ParametersTest, WordsAndChoices) {
  const auto order = [](const Parameters& parameters) {
    return parameters.choice("order", {"cyclic", "permuted"});
  };
  EXPECT_EQ(error_of("demo(a,order=Cyclic)", order),
            "demo: order=Cyclic is not valid; expected one of cyclic, permuted");
  EXPECT_EQ(error_of("demo(a,order=[cyclic])", order),
            "demo: order=[cyclic] is not valid; expected one of cyclic, permuted");
  EXPECT_EQ(error_of("demo(a,order=cyclic(1))", order),
            "demo: order=cyclic(1) is not valid; expected one of cyclic, permuted");
  const auto mirror = [](const Parameters& parameters) { return parameters.yes("mirror"); };
  EXPECT_TRUE(mirror(read("demo(a,mirror=true)")));
  EXPECT_EQ(error_of("demo(a,mirror=maybe)", mirror),
            "demo: mirror=maybe is not valid; expected one of yes, no, true, false");
  const auto file = [](const Parameters& parameters) { return parameters.text("file"); };
  EXPECT_EQ(file(read("demo(\"my graph.csv\")")), "my graph.csv");
  EXPECT_EQ(error_of("demo([a,b])", file),
            "demo: file=[a,b] is not valid; expected one word, or text between double quotes");
  EXPECT_EQ(error_of("demo(a(b))", file),
            "demo: file=a(b) is not valid; expected one word, or text between double quotes");
}

TEST(ParametersTest, NestedSpecsComeAsTheyAre) {
  EXPECT_EQ(read("demo(base(k=2))").spec("file"), parse_spec("base(k=2)"));
}

TEST(ParametersTest, Ranks) {
  const auto members = [](const Parameters& parameters) { return parameters.ranks("members", 10); };
  EXPECT_THAT(members(read("demo(a,members=[0,2,5..9])")), ElementsAre(0, 2, 5, 6, 7, 8, 9));
  EXPECT_THAT(members(read("demo(a,members=3)")), ElementsAre(3));
  EXPECT_THAT(members(read("demo(a,members=3..5)")), ElementsAre(3, 4, 5));
  EXPECT_THAT(members(read("demo(a,members=[4..4])")), ElementsAre(4));
  for (const std::string bad :
       {"[]", "[10]", "[-1]", "[1,1]", "[2,1]", "[0..10]", "[5..4]", "[0..3,3]", "[a]", "[1..]", "[..1]",
        "[[1]]", "[1...3]", "[0..2(x)]", "[1(x)]", "x", "[0..99999999999]"})
    EXPECT_EQ(error_of("demo(a,members=" + bad + ")", members),
              "demo: members=" + bad +
                  " is not valid; expected ranks below 10 in ascending order, such as [0,2,5..9]");
}

// A family that reads a parameter it did not declare is a bug in the program, not a mistake of the user.
TEST(ParametersTest, UndeclaredNamesAreErrorsOfTheProgram) {
  EXPECT_EQ(
      error_of("demo(a)", [](const Parameters& parameters) { return parameters.integer("size", 0, 1); }),
      "not InvalidArgument: demo declares no parameter 'size'");
}

}  // namespace
}  // namespace starling
