#include "starling/base/json.h"

#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <limits>
#include <sstream>

#include <nlohmann/json.hpp>

#include "starling/base/error.h"
#include "starling/base/random.h"

namespace starling {
namespace {

using Parsed = nlohmann::json;

TEST(JsonWriter, CompactDocumentsHaveNoSpacesAndTheFewestDigits) {
  std::ostringstream out;
  JsonWriter json(out, JsonWriter::Layout::compact, 0);
  json.begin_object().member("rate", 0.05).member("x", std::vector<double>{1, 0.5}).key("many");
  json.literal("1e3").key("none").value(std::nan("")).end_object();
  EXPECT_EQ(out.str(), R"({"rate":0.05,"x":[1,0.5],"many":1e3,"none":null})");
}

TEST(JsonWriter, WritesReadableDocuments) {
  std::ostringstream out;
  JsonWriter json(out);
  json.begin_object().member("name", "ring").key("rows").begin_array();
  json.begin_object().member("n", 4).end_object();
  json.end_array()
      .member("x", std::vector<double>{1, 0.5})
      .key("empty")
      .begin_array()
      .end_array()
      .end_object();
  EXPECT_TRUE(json.complete());
  EXPECT_EQ(out.str(),
            "{\n"
            "  \"name\": \"ring\",\n"
            "  \"rows\": [\n"
            "    {\n"
            "      \"n\": 4\n"
            "    }\n"
            "  ],\n"
            "  \"x\": [1, 0.5],\n"
            "  \"empty\": []\n"
            "}\n");
}

TEST(JsonWriter, OneLine) {
  std::ostringstream out;
  JsonWriter json(out, JsonWriter::Layout::one_line);
  json.begin_object().member("a", true).key("b").begin_array().null().value("c").end_array().end_object();
  EXPECT_EQ(out.str(), R"({"a": true, "b": [null, "c"]})");
}

TEST(JsonWriter, ValuesComeBack) {
  std::ostringstream out;
  JsonWriter json(out);
  json.begin_object();
  json.member("least", std::numeric_limits<std::int64_t>::min())
      .member("most", std::numeric_limits<std::uint64_t>::max());
  json.member("int", -7).member("size", std::size_t{9}).member("no", false).member("text", std::string("t"));
  json.member("view", std::string_view("v")).key("null").null();
  json.member("inf", std::numeric_limits<double>::infinity()).member("nan", std::nan(""));
  json.end_object();
  const Parsed back = Parsed::parse(out.str());
  EXPECT_EQ(back["least"], std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(back["most"], std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(back["int"], -7);
  EXPECT_EQ(back["size"], 9);
  EXPECT_EQ(back["no"], false);
  EXPECT_EQ(back["text"], "t");
  EXPECT_EQ(back["view"], "v");
  EXPECT_TRUE(back["null"].is_null());
  EXPECT_TRUE(back["inf"].is_null());
  EXPECT_TRUE(back["nan"].is_null());
}

TEST(JsonWriter, EveryDoubleComesBackExactly) {
  std::vector<double> numbers = {0.1,  1.0 / 3, 5e-324, std::numeric_limits<double>::max(),
                                 -2.5, 1e22,    0,      1e-310};
  Random random(1, 0, 0);
  while (numbers.size() < 2000) {
    const std::uint64_t bits = random.next();
    double number = 0;
    std::memcpy(&number, &bits, sizeof number);
    if (std::isfinite(number)) numbers.push_back(number);
  }
  std::ostringstream out;
  JsonWriter(out).value(numbers);
  EXPECT_EQ(Parsed::parse(out.str()).get<std::vector<double>>(), numbers);
}

TEST(JsonWriter, FewerDigitsWhenAsked) {
  std::ostringstream out;
  JsonWriter(out, JsonWriter::Layout::one_line, 3).value(1.0 / 3);
  EXPECT_EQ(out.str(), "0.333");
}

TEST(JsonWriter, StringsComeBack) {
  std::string hostile = "\"quoted\\ \b\f\n\r\t/ </script> µ 🐦 \u2028";
  for (char c = 0; c < 0x20; ++c) hostile += c;
  std::ostringstream out;
  JsonWriter(out).begin_object().member(hostile, hostile).end_object();
  const Parsed back = Parsed::parse(out.str());
  EXPECT_EQ(back[hostile], hostile);
}

TEST(JsonWriter, BrokenUtf8IsReplaced) {
  EXPECT_EQ(json_quoted("a\xff\xc3(b"), "\"a\uFFFD\uFFFD(b\"");
  EXPECT_TRUE(Parsed::accept(json_quoted("\xed\xa0\x80\xf8\x88")));
}

TEST(JsonWriter, RefusesInvalidDocuments) {
  std::ostringstream out;
  EXPECT_THROW(JsonWriter(out).key("a"), Error);
  EXPECT_THROW(JsonWriter(out).begin_object().value(1), Error);
  EXPECT_THROW(JsonWriter(out).begin_object().key("a").key("b"), Error);
  EXPECT_THROW(JsonWriter(out).begin_object().key("a").end_object(), Error);
  EXPECT_THROW(JsonWriter(out).begin_array().key("a"), Error);
  EXPECT_THROW(JsonWriter(out).begin_array().end_object(), Error);
  EXPECT_THROW(JsonWriter(out).end_array(), Error);
  EXPECT_THROW(JsonWriter(out).value(1).value(2), Error);
  EXPECT_FALSE(JsonWriter(out).begin_array().complete());
}

}  // namespace
}  // namespace starling
