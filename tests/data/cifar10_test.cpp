#include "starling/data/cifar10.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/data_files.h"

namespace starling::data {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::size_t kRecord = 3073;

// Returns records with these labels; every pixel is 10 * label + channel.
Bytes records(const Bytes& labels) {
  Bytes bytes;
  for (const std::uint8_t label : labels) {
    bytes.push_back(label);
    for (std::size_t i = 0; i < 3 * 1024; ++i)
      bytes.push_back(static_cast<std::uint8_t>(10 * label + i / 1024));
  }
  return bytes;
}

// Two records in each of the five training files, three in the test file.
std::map<std::string, Bytes> all_files() {
  std::map<std::string, Bytes> files = {{"test_batch.bin", records({7, 8, 9})}};
  for (std::uint8_t i = 0; i < 5; ++i)
    files["data_batch_" + std::to_string(i + 1) + ".bin"] = records({i, static_cast<std::uint8_t>(9 - i)});
  return files;
}

void expect_all(const std::filesystem::path& folder) {
  const Dataset train = load("cifar10", Split::train, folder);
  EXPECT_THAT(train.labels, ElementsAre(0, 9, 1, 8, 2, 7, 3, 6, 4, 5));
  EXPECT_EQ(train.shape, (ImageShape{3, 32, 32}));
  EXPECT_EQ(train.classes, 10);
  for (std::size_t channel = 0; channel < 3; ++channel)
    EXPECT_THAT(train.image(3).subspan(channel * 1024, 1024), Each(80 + channel));
  EXPECT_THAT(load("cifar10", Split::test, folder).labels, ElementsAre(7, 8, 9));
}

TEST(Cifar10Test, ReadsPlainFilesGzipAndTheArchive) {
  const DataFolder plain, packed, subfolder, archive;
  std::map<std::string, Bytes> members;
  for (const auto& [name, bytes] : all_files()) {
    plain.write(name, bytes);
    packed.write(name + ".gz", gzip(bytes));
    subfolder.write("cifar-10-batches-bin/" + name, bytes);
    members["cifar-10-batches-bin/" + name] = bytes;
  }
  archive.write("cifar-10-binary.tar.gz", gzip(tar(members)));
  for (const DataFolder* folder : {&plain, &packed, &subfolder, &archive}) expect_all(folder->path());
}

TEST(Cifar10Test, FilesThatAreDamagedAreNamed) {
  const DataFolder folder;
  const auto refusal = [&](const Bytes& bytes) {
    const auto path = folder.write("test_batch.bin", bytes);
    const std::string message = message_of([&] { load("cifar10", Split::test, folder.path()); });
    EXPECT_THAT(message, HasSubstr(path.string() + ": "));
    return message;
  };
  Bytes bytes = records({1, 2, 3});
  bytes[2 * kRecord] = 10;
  EXPECT_THAT(refusal(bytes), HasSubstr("record 2 has the label 10; valid are 0 to 9"));
  EXPECT_THAT(refusal(Bytes(bytes.begin(), bytes.begin() + kRecord + 5)),
              HasSubstr("cut off in record 1: 3078 bytes are no whole number of records of 3073"));
  EXPECT_THAT(refusal({}), HasSubstr("it is empty"));
}

TEST(Cifar10Test, AnArchiveWithoutAFileIsNamed) {
  const DataFolder folder;
  const auto path = folder.write("cifar-10-binary.tar.gz",
                                 gzip(tar({{"cifar-10-batches-bin/test_batch.bin", records({1})}})));
  EXPECT_EQ(load_cifar10(Split::test, folder.path()).size(), 1u);
  EXPECT_EQ(message_of([&] { load_cifar10(Split::train, folder.path()); }),
            path.string() + " has no cifar-10-batches-bin/data_batch_1.bin");
}

TEST(Cifar10Test, SaysHowToGetIt) {
  const DataFolder folder;
  const Variable own("STARLING_DATA", folder.path().string());
  for (const std::string name :
       {"data_batch_1.bin", "data_batch_2.bin", "data_batch_4.bin", "data_batch_5.bin"})
    folder.write("cifar10/" + name, records({1}));
  EXPECT_THAT(message_of([] { load("cifar10", Split::train); }),
              AllOf(HasSubstr((folder.path() / "cifar10").string() + " has neither"),
                    HasSubstr("data_batch_3.bin"), HasSubstr("cifar-10-binary.tar.gz"),
                    HasSubstr("`starling data cifar10` fetches it"), HasSubstr("STARLING_DATA")));
}

// The layout of npm's package: images as rows of pixels, the labels of all training files in one list.
class Cifar10FromNpm : public testing::Test {
 protected:
  Bytes make(const std::string& name) const {
    return cifar10_from_npm({name, ""}, [&](const std::string& member) {
      EXPECT_TRUE(members.contains(member)) << member;
      return std::span<const std::uint8_t>(members.at(member));
    });
  }
  static Bytes text(const std::string& text) { return {text.begin(), text.end()}; }

  // Two images; red, green and blue count up by pixel, from 0, 50 and 100.
  static Bytes rows() {
    Bytes pixels;
    for (std::size_t i = 0; i < 2 * 1024; ++i)
      for (const std::size_t from : {0, 50, 100}) pixels.push_back(static_cast<std::uint8_t>(from + i));
    return png(1024, 2, pixels);
  }

  std::map<std::string, Bytes> members = {{"data_batch_2.png", rows()},
                                          {"test_batch.png", rows()},
                                          {"train_lables.json", text("[0, 1, 2, 3, 4, 5]")},
                                          {"test_lables.json", text("[8, 9]")}};
};

TEST_F(Cifar10FromNpm, MakesTheBinaryVersion) {
  for (const auto& [name, label] : {std::pair{"data_batch_2.bin", 2}, {"test_batch.bin", 8}}) {
    const Bytes made = make(name);
    ASSERT_EQ(made.size(), 2 * kRecord);
    EXPECT_EQ(made[0], label);
    EXPECT_EQ(made[kRecord], label + 1);
    EXPECT_THAT(std::span(made).subspan(1, 3), ElementsAre(0, 1, 2));
    EXPECT_THAT(std::span(made).subspan(1 + 1024, 3), ElementsAre(50, 51, 52));
    EXPECT_THAT(std::span(made).subspan(kRecord + 1 + 2048, 3), ElementsAre(100, 101, 102));
  }
}

TEST_F(Cifar10FromNpm, RefusesWhatDoesNotFit) {
  const auto refusal = [&](const std::string& name) { return message_of([&] { make(name); }); };
  members["test_lables.json"] = text("[8]");
  EXPECT_THAT(refusal("test_batch.bin"), HasSubstr("test_batch.png has 2 images of 1024 pixels"));
  members["test_lables.json"] = text("[8, 10]");
  EXPECT_THAT(refusal("test_batch.bin"), HasSubstr("label 1 is not one of 0 to 9"));
  members["test_lables.json"] = text("<html>");
  EXPECT_THAT(refusal("test_batch.bin"), HasSubstr("cannot be test_batch.bin"));
  members["data_batch_2.png"] = png(3, 2, Bytes(18));
  EXPECT_THAT(refusal("data_batch_2.bin"), HasSubstr("2 images of 3 pixels"));
}

}  // namespace
}  // namespace starling::data
