#include "starling/report/markup.h"

#include <gtest/gtest.h>

#include "report/markup_checker.h"
#include "starling/base/utf8.h"

namespace starling::report {
namespace {

TEST(MarkupChecker, DetectsErrors) {
  EXPECT_EQ(check_markup("<a><b x=\"1\"/>text &amp; more</a>\n").problem, "");
  for (const char* broken : {"<a><b></a></b>", "<a>", "</a>", "<a x=1/>", "<a>b & c</a>", "<a x=\"<\"/>",
                             "<a/><a/>", "<a x=\"1\" x=\"2\"/>", "<a>1 < 2</a>", "<a>\x01</a>"})
    EXPECT_NE(check_markup(broken).problem, "") << broken;
}

TEST(Markup, EscapesForTextAndAttributes) {
  EXPECT_EQ(escape_markup("a<b>&\"c'"), "a&lt;b&gt;&amp;&quot;c&#39;");
  EXPECT_EQ(escape_markup("µ – 日本 🐦"), "µ – 日本 🐦");
}

TEST(Markup, ReplacesCharactersThatXmlForbids) {
  EXPECT_EQ(escape_markup(std::string_view("a\0b\x1b\n", 5)), "a\uFFFDb\uFFFD\n");
  EXPECT_EQ(escape_markup("\xff|\xc3|\xe2\x82|\xed\xa0\x80"),
            "\uFFFD|\uFFFD|\uFFFD\uFFFD|\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(escape_markup("\xef\xbf\xbf"), "\uFFFD");
}

TEST(Markup, ScriptsCannotEndTheirElement) {
  EXPECT_EQ(escape_script("a = '</script>' + \"</SCRIPT >\" + '<!-- x'"),
            "a = '<\\/script>' + \"<\\/SCRIPT >\" + '<\\!-- x'");
  EXPECT_EQ(escape_script("if (a<!0 && b</x/.y) {}"), "if (a<!0 && b</x/.y) {}");
  EXPECT_EQ(escape_script_json("[\"</script><b>\", 1]"), "[\"\\u003c/script>\\u003cb>\", 1]");
}

TEST(Utf8, CountsAndShortensCodePoints) {
  EXPECT_EQ(utf8_length(""), 0U);
  EXPECT_EQ(utf8_length("µs – 日本🐦"), 8U);
  EXPECT_EQ(utf8_length("a\xff\xc3"), 3U);
  EXPECT_EQ(utf8_shortened("µµµµ", 4), "µµµµ");
  EXPECT_EQ(utf8_shortened("µµµµµ", 4), "µµµ…");
}

TEST(Utf8, RejectsOverlongForms) {
  std::size_t position = 0;
  EXPECT_EQ(next_code_point("\xc0\xaf", position), char32_t{0xFFFD});  // '/' in two bytes
  EXPECT_EQ(position, 1U);
  position = 0;
  EXPECT_EQ(next_code_point("\xf4\x90\x80\x80", position), char32_t{0xFFFD});  // beyond U+10FFFF
}

TEST(Utf8, EveryCodePointComesBack) {
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text;
    append_utf8(text, c);
    std::size_t position = 0;
    ASSERT_EQ(next_code_point(text, position), c);
    ASSERT_EQ(position, text.size());
  }
}

}  // namespace
}  // namespace starling::report
