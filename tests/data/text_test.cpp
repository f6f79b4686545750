#include "starling/data/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/data_files.h"

namespace starling::data {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

// 'a' to 'j', repeated.
Bytes letters(std::size_t count) {
  Bytes bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::uint8_t>('a' + i % 10);
  return bytes;
}

TEST(TextTest, WindowsLieBehindEachOther) {
  const TextWindows text("t", letters(100), 4);
  EXPECT_EQ(text.block(), 4u);
  EXPECT_EQ(text.size(Split::train), 22u);  // of 90 characters; the last is only a target
  EXPECT_EQ(text.size(Split::test), 2u);    // of 10
  EXPECT_THAT(text.window(Split::train, 0), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(text.window(Split::train, 1), ElementsAre(4, 5, 6, 7, 8));
  EXPECT_THAT(text.window(Split::train, 21), ElementsAre(4, 5, 6, 7, 8));
  EXPECT_THAT(text.window(Split::test, 1), ElementsAre(4, 5, 6, 7, 8));
  EXPECT_EQ(message_of([&] { text.window(Split::test, 2); }), "t has no window 2 among 2 to test");
}

TEST(TextTest, TheAlphabetHasTheCharactersThatOccur) {
  Bytes bytes(40, 0xFF);
  bytes[3] = 0;
  bytes[39] = 'x';  // in the test split only
  const TextWindows text("t", bytes, 3);
  EXPECT_THAT(text.alphabet(), ElementsAre(0, 'x', 0xFF));
  EXPECT_THAT(text.window(Split::train, 0), ElementsAre(2, 2, 2, 0));
  EXPECT_THAT(text.window(Split::test, 0), ElementsAre(2, 2, 2, 1));
}

TEST(TextTest, AllBytesMayOccur) {
  Bytes bytes(2560);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(i);
  const TextWindows text("t", bytes, 255);
  EXPECT_EQ(text.alphabet().size(), 256u);
  EXPECT_EQ(text.window(Split::train, 0)[255], 255);
}

TEST(TextTest, ReadsPlainAndGzip) {
  const DataFolder folder;
  for (const auto& path :
       {folder.write("a text.txt", letters(100)), folder.write("text.gz", gzip(letters(100)))})
    EXPECT_EQ(read_text(path, 4).size(Split::train), 22u);
}

TEST(TextTest, RefusesWhatIsTooShortOrNotThere) {
  const DataFolder folder;
  const auto refusal = [&](const std::filesystem::path& path, std::size_t block) {
    return message_of([&] { read_text(path, block); });
  };
  const auto path = folder.write("short.txt", letters(109));
  EXPECT_EQ(refusal(path, 10),
            path.string() +
                " has 109 characters: too short. Windows of block=10 need at least 110, for "
                "the last tenth is kept to test on");
  EXPECT_EQ(read_text(folder.write("long.txt", letters(110)), 10).size(Split::test), 1u);
  EXPECT_THAT(refusal(folder.write("empty.txt", Bytes{}), 10), HasSubstr("has 0 characters"));
  EXPECT_THAT(refusal(path, 0), HasSubstr("at least one character"));
  EXPECT_THAT(refusal(folder.path() / "none.txt", 10),
              AllOf(HasSubstr("none.txt"), HasSubstr("No such file")));
  EXPECT_THAT(refusal(folder.path(), 10), HasSubstr("it is a folder"));
}

}  // namespace
}  // namespace starling::data
