#include "starling/base/spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "starling/base/error.h"

namespace starling {
namespace {

using testing::HasSubstr;

std::string canonical(std::string_view text) {
  return parse_spec(text).to_string();
}

// Returns the error message, or "" if the text parses.
std::string parse_error(std::string_view text) {
  try {
    parse_spec(text);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "";
}

Spec word(const std::string& text) {
  return {text, false, {}};
}

TEST(SpecTest, ReadsNamesArgumentsAndLists) {
  const Spec spec = parse_spec("live(base(k=2), members=[0,2,5..9])");
  EXPECT_EQ(spec.word, "live");
  EXPECT_FALSE(spec.is_list);
  ASSERT_EQ(spec.arguments.size(), 2u);
  EXPECT_EQ(spec.arguments[0].key, "");
  EXPECT_EQ(spec.arguments[0].value, (Spec{"base", false, {{"k", word("2")}}}));
  EXPECT_EQ(spec.arguments[1].key, "members");
  const Spec& members = spec.arguments[1].value;
  EXPECT_TRUE(members.is_list);
  EXPECT_EQ(members.word, "");
  ASSERT_EQ(members.arguments.size(), 3u);
  EXPECT_EQ(members.arguments[2].value, word("5..9"));
}

TEST(SpecTest, WordsTakeNumbersAndPaths) {
  for (const std::string text : {"ring", "one-peer-ring", "-1", "+3", "1e-10", "0.5", "./a/b_c.csv", "C:/x",
                                 "~/g.json", "50%", "user@host:80"})
    EXPECT_EQ(parse_spec(text), word(text));
}

TEST(SpecTest, WhiteSpaceBetweenPiecesMeansNothing) {
  EXPECT_EQ(parse_spec(" \t base\n ( k = 2 ,\r\n [ 1 , 2 ] ) "), parse_spec("base(k=2,[1,2])"));
}

TEST(SpecTest, EmptyBracketsAreAllowed) {
  EXPECT_EQ(parse_spec("ring()"), parse_spec("ring"));
  const Spec list = parse_spec("[ ]");
  EXPECT_TRUE(list.is_list);
  EXPECT_TRUE(list.arguments.empty());
  EXPECT_NE(list, word(""));  // an empty list is not an empty word
}

TEST(SpecTest, CanonicalTextIsFixed) {
  EXPECT_EQ(canonical(" periodic( ring , h = 16 ) "), "periodic(ring,h=16)");
  EXPECT_EQ(canonical("live(ring, members=[ 0, 2, 5..9 ])"), "live(ring,members=[0,2,5..9])");
  EXPECT_EQ(canonical("\"ring\"(\"k\"=\"2\")"), "ring(k=2)");  // quotes only where they are needed
  EXPECT_EQ(canonical("ring()"), "ring");
  EXPECT_EQ(canonical("[]"), "[]");
  EXPECT_EQ(canonical("[[],[a,[b]]]"), "[[],[a,[b]]]");
  EXPECT_EQ(canonical("f(\"\")"), "f(\"\")");
}

TEST(SpecTest, QuotesKeepAnything) {
  EXPECT_EQ(parse_spec("f(file=\"my graph, (1).csv\")").arguments[0].value, word("my graph, (1).csv"));
  EXPECT_EQ(parse_spec("\" a \""), word(" a "));
  EXPECT_EQ(parse_spec(R"("say \"hi\" \\ \n")"),
            word(R"(say "hi" \ n)"));  // a backslash keeps the next character
  EXPECT_EQ(canonical(R"("a\"b\\c")"), R"("a\"b\\c")");
  EXPECT_EQ(canonical("\"caf\xC3\xA9\""), "\"caf\xC3\xA9\"");
  EXPECT_EQ(parse_spec(canonical("f(\"a key\"=1)")).arguments[0].key, "a key");
}

TEST(SpecTest, ErrorsSayWhereAndWhatWasExpected) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "cannot read \"\": expected a name or a value at position 1, found the end"},
      {"   ", "expected a name or a value at position 4, found the end"},
      {"ring ring", "cannot read \"ring ring\": expected the end at position 6, found 'r'"},
      {"base(k=2", "expected ',' or ')' at position 9, found the end"},
      {"base(k=)", "expected a name or a value at position 8, found ')'"},
      {"base(k=2))", "expected the end at position 10, found ')'"},
      {"base(,)", "expected a name or a value at position 6, found ','"},
      {"base(1,)", "expected a name or a value at position 8, found ')'"},
      {"[1 2]", "expected ',' or ']' at position 4, found '2'"},
      {"[a=1]", "expected ',' or ']' at position 3, found '='"},
      {"f(a(b)=1)", "expected a plain name before '=' at position 8, found '1'"},
      {"f([a]=1)", "expected a plain name before '='"},
      {"f(\"\"=1)", "expected a plain name before '='"},
      {"f(a=b=c)", "expected ',' or ')' at position 6, found '='"},
      {"\"open", "expected a closing '\"' at position 6, found the end"},
      {"\"open\\", "expected a closing '\"'"},
      {"ring;", "expected the end at position 5, found ';'"},
      {"k=2", "expected the end at position 2, found '='"},
  };
  for (const auto& [text, message] : cases) EXPECT_THAT(parse_error(text), HasSubstr(message)) << text;
}

// A byte from the middle of a UTF-8 character would print as garbage.
TEST(SpecTest, ErrorsShowWholeCharacters) {
  EXPECT_THAT(parse_error("ring\xE2\x86\x92"), HasSubstr("found '\xE2\x86\x92'"));
}

TEST(SpecTest, ErrorsStayOnOneLine) {
  EXPECT_EQ(parse_error("a\nb"), "cannot read \"a\\x0ab\": expected the end at position 3, found 'b'");
}

TEST(SpecTest, ZeroByteIsNotTheEnd) {
  EXPECT_THAT(parse_error(std::string_view("ring\0x", 6)), HasSubstr("expected the end at position 5"));
  EXPECT_THAT(parse_error(std::string_view("f(a\0)", 5)), HasSubstr("expected ',' or ')' at position 4"));
  EXPECT_EQ(parse_spec(std::string_view("\"a\0b\"", 5)), word(std::string("a\0b", 3)));
}

std::string nested(int depth, const std::string& open, const std::string& close) {
  std::string text = "x";
  for (int i = 0; i < depth; ++i) text.insert(0, open).append(close);
  return text;
}

// A hostile string must not overflow the stack.
TEST(SpecTest, NestingIsLimited) {
  for (const auto& [open, close] : {std::pair("f(", ")"), std::pair("[", "]"), std::pair("f(k=", ")")}) {
    const Spec deepest = parse_spec(nested(32, open, close));
    EXPECT_EQ(parse_spec(deepest.to_string()), deepest);
    EXPECT_THAT(parse_error(nested(33, open, close)), HasSubstr("nested deeper than 32 at position"));
    EXPECT_THAT(parse_error(nested(10'000, open, close)), HasSubstr("nested deeper than 32"));
  }
}

TEST(SpecTest, EqualityLooksAtEveryPart) {
  const Spec spec = parse_spec("f(a=1,[2])");
  for (const std::string other :
       {"g(a=1,[2])", "f(b=1,[2])", "f(1,[2])", "f(a=2,[2])", "f(a=1,2)", "f(a=1)", "f(a=1,[2,3])"})
    EXPECT_NE(parse_spec(other), spec) << other;
}

}  // namespace
}  // namespace starling
