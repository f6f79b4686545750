#include "starling/train/description.h"

#include <gtest/gtest.h>

namespace starling::train {
namespace {

Description described(const std::vector<Description::Line>& lines) {
  Description made;
  for (const auto& [key, value] : lines) made.add(key, value);
  return made;
}

TEST(Description, TextRoundTrips) {
  const Description made = described({{"method", "dsgd-awc"}, {"name\nwith\tlines", "1"}, {"empty", ""}});
  const Description again = Description::parse(made.text());
  EXPECT_EQ(again.lines(), made.lines());
  EXPECT_EQ(again.digest(), made.digest());
  EXPECT_EQ(made.lines()[1].first, "name with lines");
}

TEST(Description, TheFirstDifferenceNamesBothValues) {
  const Description first = described({{"a", "1"}, {"b", "2"}, {"c", "3"}});
  EXPECT_FALSE(first_difference(first, first));
  const auto text = [&](const std::vector<Description::Line>& other) {
    return first_difference(first, described(other)).value().text(0, 7);
  };
  EXPECT_EQ(text({{"a", "1"}, {"b", "4"}, {"c", "5"}}), "b: 2 on rank 0, 4 on rank 7");
  EXPECT_EQ(text({{"a", "1"}, {"c", "3"}}), "b: 2 on rank 0, none on rank 7");
  EXPECT_EQ(text({{"a", "1"}, {"x", "9"}, {"b", "2"}, {"c", "3"}}), "x: none on rank 0, 9 on rank 7");
  EXPECT_EQ(text({{"a", "1"}, {"b", "2"}}), "c: 3 on rank 0, none on rank 7");
  EXPECT_EQ(text({{"b", "2"}, {"a", "1"}, {"c", "3"}}),
            "number 1 in the list of settings: a on rank 0, b on rank 7");
}

TEST(Description, NumbersIgnoreTheirLastBits) {
  EXPECT_EQ(describe_number(0.1), "0.1");
  EXPECT_EQ(describe_number(0.1 + 1e-15), describe_number(0.1));
  EXPECT_NE(describe_number(0.1 + 1e-6), describe_number(0.1));
}

}  // namespace
}  // namespace starling::train
