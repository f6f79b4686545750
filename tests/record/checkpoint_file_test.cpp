#include "starling/record/checkpoint_file.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "record/checkpoint_state.h"
#include "record/folder.h"
#include "starling/base/checksum.h"
#include "starling/base/error.h"
#include "starling/record/checkpoint_layout.h"

namespace starling::record {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

const Labels kLabels = {{"rank", "3"}, {"method", "dsgd-awc"}, {"word", "Größe \"2\""}};

// Reads the file as a program that resumes does; returns the Error's text, or "".
std::string reading(const std::string& path) {
  return error_of([&] {
    SmallState state(0);
    const CheckpointFile file(path);
    file.read_into(state.places());
  });
}

class CheckpointFileTest : public testing::Test {
 protected:
  CheckpointFileTest() : path_(folder_.path("rank-3.state")) {
    mark_ = write_checkpoint_file(path_, kLabels, SmallState(7).parts());
  }
  // Writes the file with a changed head whose own checksum is valid.
  void write_head(const CheckpointHead& changed) {
    CheckpointHead head = changed;
    head.checksum = checksum_of(std::as_bytes(std::span(&head, 1)).first(kCheckpointHeadChecked));
    std::string bytes = folder_.read("rank-3.state");
    std::memcpy(bytes.data(), &head, sizeof(head));
    folder_.write("rank-3.state", bytes);
  }
  CheckpointHead head() {
    CheckpointHead head;
    std::memcpy(&head, folder_.read("rank-3.state").data(), sizeof(head));
    return head;
  }

  RecordFolder folder_;
  std::string path_;
  CheckpointFileMark mark_;
};

TEST_F(CheckpointFileTest, AnotherRanksFileIsNotOverwritten) {
  const std::string path = folder_.path("own.state");
  write_own_checkpoint_file(path, 1, {}, SmallState(1).parts());
  EXPECT_EQ(CheckpointFile(path).label("rank"), "1");
  EXPECT_THAT(
      error_of([&] { write_own_checkpoint_file(path, 2, {}, SmallState(2).parts()); }),
      HasSubstr("own.state is the checkpoint of rank 1, and this is rank 2: each rank saves to a file of "
                "its own"));
  SmallState state(0);
  CheckpointFile(path).read_into(state.places());
  EXPECT_EQ(state, SmallState(1));
  write_own_checkpoint_file(path, 1, {}, SmallState(3).parts());
  CheckpointFile(path).read_into(state.places());
  EXPECT_EQ(state, SmallState(3));
  folder_.write("own.state", "something else");
  write_own_checkpoint_file(path, 2, {}, SmallState(2).parts());
  EXPECT_EQ(CheckpointFile(path).label("rank"), "2");
  for (const auto& entry : std::filesystem::directory_iterator(folder_.path("")))
    EXPECT_EQ(entry.path().string().find(".part-"), std::string::npos) << entry.path();
}

TEST_F(CheckpointFileTest, ReadsBackWhatWasWritten) {
  const CheckpointFile file(path_);
  EXPECT_EQ(file.labels(), kLabels);
  EXPECT_EQ(file.label("method"), "dsgd-awc");
  SmallState state(0);
  file.read_into(state.places());
  EXPECT_EQ(state, SmallState(7));
  file.verify();
  ASSERT_EQ(file.parts().size(), 3U);
  EXPECT_EQ(file.parts()[1].type, "int64");
  EXPECT_EQ(file.parts()[1].bytes, 24U);
  EXPECT_EQ(file.parts()[1].offset % 64, 0U);
  EXPECT_EQ(file.read("counters").size(), 24U);
  EXPECT_TRUE(file.has("nothing"));
  EXPECT_EQ(file.mark().checksum, mark_.checksum);
  EXPECT_EQ(file.mark().bytes, folder_.read("rank-3.state").size());
}

TEST_F(CheckpointFileTest, HandlesLargePartsAndManySmallOnes) {
  std::vector<double> large(700'001);
  for (std::size_t i = 0; i < large.size(); ++i) large[i] = static_cast<double>(i * i);
  std::vector<StatePart> parts = {state_part<double>("large", large)};
  for (std::size_t i = 0; i < 3000; ++i)
    parts.push_back(state_part<double>(fmt::format("small {}", i), std::span(large).subspan(i, i % 10)));
  write_checkpoint_file(path_, {}, parts);
  const CheckpointFile file(path_);
  for (const StatePart& part : parts) {
    const auto bytes = file.read(part.name);
    ASSERT_TRUE(std::ranges::equal(bytes, part.bytes)) << part.name;
  }
}

TEST_F(CheckpointFileTest, DetectsAnyChangedByte) {
  const std::string good = folder_.read("rank-3.state");
  ASSERT_LT(good.size(), 2000U);
  std::fstream file(path_, std::ios::binary | std::ios::in | std::ios::out);
  const auto put = [&](std::size_t i, int byte) {
    file.seekp(static_cast<std::streamoff>(i)).put(static_cast<char>(byte)).flush();
  };
  for (std::size_t i = 0; i < good.size(); ++i) {
    for (const int flip : {0x01, 0x80, 0xFF}) {
      put(i, good[i] ^ flip);
      ASSERT_THAT(reading(path_), AnyOf(HasSubstr("is corrupt: "), HasSubstr("is not a Starling checkpoint")))
          << "byte " << i;
    }
    put(i, good[i]);
  }
  EXPECT_EQ(reading(path_), "");
}

TEST_F(CheckpointFileTest, DetectsAnyTruncation) {
  const std::string good = folder_.read("rank-3.state");
  for (std::size_t size = good.size(); size-- > 0;) {
    std::filesystem::resize_file(path_, size);
    ASSERT_THAT(
        reading(path_),
        HasSubstr(size < 64 ? fmt::format("rank-3.state is truncated: {} of at least 64 bytes", size)
                            : fmt::format("rank-3.state is truncated: {} of {} bytes", size, good.size())));
  }
  folder_.write("rank-3.state", good + '\0');
  EXPECT_THAT(reading(path_), HasSubstr(fmt::format("has {} bytes instead of", good.size() + 1)));
}

TEST_F(CheckpointFileTest, RejectsForeignFiles) {
  folder_.write("rank-3.state", "{\"this\": \"is some other file\"}");
  EXPECT_THAT(reading(path_), HasSubstr("rank-3.state is not a Starling checkpoint"));
  folder_.write("rank-3.state", std::string(10'000, '\0'));
  EXPECT_THAT(reading(path_), HasSubstr("is not a Starling checkpoint"));
  EXPECT_THAT(reading(folder_.path("none")), HasSubstr("No such file or directory"));
  EXPECT_THAT(reading(folder_.path("")), HasSubstr("is not a file"));
}

TEST_F(CheckpointFileTest, RejectsNewerVersions) {
  CheckpointHead changed = head();
  changed.version = 2;
  write_head(changed);
  EXPECT_THAT(reading(path_), HasSubstr("was written by a newer version (2; this one reads 1)"));
}

TEST_F(CheckpointFileTest, RejectsAForgedHead) {
  CheckpointHead changed = head();
  changed.table_bytes = 0xFFFFFFFFU;
  write_head(changed);
  EXPECT_THAT(reading(path_), HasSubstr("is corrupt: its head says"));
}

// All checksums are valid: sizes that add up only modulo 2^64 are refused before anything is allocated.
TEST_F(CheckpointFileTest, RejectsAForgedTable) {
  const std::string good = folder_.read("rank-3.state");
  const std::string first = "\"bytes\":24";
  for (const std::string huge :
       {"18446744073709551615", "18446744073709551552", "9223372036854775808", "-8"}) {
    std::string table = good.substr(sizeof(CheckpointHead), head().table_bytes);
    const std::size_t at = table.find(first);
    ASSERT_NE(at, std::string::npos) << table;
    table.replace(at, first.size(), "\"bytes\":" + huge);
    ASSERT_EQ(table.back(), ' ');
    table.resize((table.size() + 63) / 64 * 64, ' ');
    CheckpointHead changed = head();
    changed.table_bytes = static_cast<std::uint32_t>(table.size());
    changed.table_checksum = checksum_of(std::as_bytes(std::span(table)));
    const std::string rest = good.substr(sizeof(CheckpointHead) + head().table_bytes);
    changed.file_bytes = sizeof(changed) + table.size() + rest.size();
    folder_.write("rank-3.state", std::string(sizeof(changed), ' ') + table + rest);
    write_head(changed);
    EXPECT_THAT(reading(path_), HasSubstr("is corrupt: its part")) << huge;
    folder_.write("rank-3.state", good);
  }
}

TEST_F(CheckpointFileTest, MismatchesNameThePart) {
  const CheckpointFile file(path_);
  std::vector<float> values(50, -1);
  const auto into = [&](StatePlace place) {
    return error_of([&] { file.read_into(std::vector{std::move(place)}); });
  };
  EXPECT_THAT(into(state_place<float>("y", values)),
              HasSubstr("has no part y; its parts are x, counters, nothing"));
  EXPECT_THAT(into(state_place<float>("x", std::span(values).first(49))),
              HasSubstr("rank-3.state has 200 bytes of x, but 196 are expected"));
  std::vector<std::int32_t> other(50, -1);
  EXPECT_THAT(into(state_place<std::int32_t>("x", other)),
              HasSubstr("has x as float32, but int32 is expected"));
  EXPECT_THAT(error_of([&] { file.read("y"); }), HasSubstr("has no part y"));
  EXPECT_THAT(error_of([&] { file.label("color"); }), HasSubstr("has no label color"));
  // Nothing is read unless everything fits.
  EXPECT_THAT(error_of([&] {
                file.read_into(std::vector{state_place<float>("x", values), state_place<float>("y", values)});
              }),
              HasSubstr("has no part y"));
  EXPECT_EQ(values, std::vector<float>(50, -1));
}

TEST_F(CheckpointFileTest, AFailedWriteKeepsTheOldFile) {
  std::vector<StatePart> parts = SmallState(8).parts();
  parts.push_back(parts[0]);
  EXPECT_THAT(error_of([&] { write_checkpoint_file(path_, {}, parts); }),
              HasSubstr("two parts of a checkpoint are called 'x'"));
  EXPECT_THAT(error_of([&] {
                write_checkpoint_file(path_, {{"a", "\xFF"}}, {});
              }),
              HasSubstr("must be UTF-8"));
  EXPECT_THAT(error_of([&] { write_checkpoint_file(folder_.path("none/file"), {}, {}); }),
              HasSubstr("cannot write"));
  EXPECT_EQ(reading(path_), "");
}

}  // namespace
}  // namespace starling::record
