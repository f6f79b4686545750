#include "starling/data/idx.h"

#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/data_files.h"

namespace starling::data {
namespace {

using testing::AllOf;
using testing::HasSubstr;

const IdxSet kSmall{.name = "small",
                    .shape = {.channels = 1, .height = 4, .width = 3},
                    .classes = 5,
                    .mean = 0.5F,
                    .deviation = 0.25F};

TEST(IdxTest, ReadsPlainAndGzip) {
  const DataFolder folder;
  const Bytes bytes = idx({7, 4, 3});
  for (const auto& path : {folder.write("plain", bytes), folder.write("packed", gzip(bytes))}) {
    const IdxArray array = read_idx(path, 3);
    EXPECT_EQ(array.dimensions, (std::vector<std::size_t>{7, 4, 3}));
    EXPECT_EQ(array.values, Bytes(bytes.begin() + 16, bytes.end()));
  }
}

// Reads a file longer than one chunk of memory.
TEST(IdxTest, ReadsLongFiles) {
  const DataFolder folder;
  const Bytes bytes = idx({5'000'000}, 251);
  for (const auto& path : {folder.write("plain", bytes), folder.write("packed", gzip(bytes))})
    EXPECT_EQ(read_idx(path, 1).values, Bytes(bytes.begin() + 8, bytes.end()));
}

TEST(IdxTest, EveryTruncationIsRefused) {
  const DataFolder folder;
  const Bytes bytes = idx({5, 2, 3});
  for (const Bytes& whole : {bytes, gzip(bytes)})
    for (std::size_t size = 0; size < whole.size(); ++size) {
      const auto path = folder.write("cut", Bytes(whole.begin(), whole.begin() + static_cast<long>(size)));
      EXPECT_THAT(message_of([&] { read_idx(path, 3); }), HasSubstr(path.string())) << size;
    }
  const auto path = folder.write("cut", Bytes(bytes.begin(), bytes.end() - 1));
  EXPECT_EQ(message_of([&] { read_idx(path, 3); }),
            path.string() + ": cut off: its header promises 5 x 2 x 3 = 30 bytes, 29 follow");
}

TEST(IdxTest, ForeignFilesAreRefused) {
  const DataFolder folder;
  const auto refusal = [&](const Bytes& bytes) {
    const auto path = folder.write("file", bytes);
    const std::string message = message_of([&] { read_idx(path, 1); });
    EXPECT_TRUE(message.starts_with(path.string()) || message.starts_with("cannot read " + path.string()))
        << message;
    return message;
  };
  EXPECT_THAT(
      refusal({'<', 'h', 't', 'm', 'l', '>'}),
      HasSubstr("begins with 3c 68 74 6d; an IDX file of bytes with 1 dimension begins with 00 00 08 01"));
  EXPECT_THAT(refusal(idx({2, 3})), HasSubstr("begins with 00 00 08 02"));
  Bytes floats = idx({3});
  floats[2] = 0x0D;
  EXPECT_THAT(refusal(floats), HasSubstr("begins with 00 00 0d 01"));
  Bytes longer = idx({3});
  longer.push_back(0);
  EXPECT_THAT(refusal(longer), HasSubstr("more bytes than the 3 = 3 that its header promises"));
  // Memory grows with the data, not with the size that the header claims.
  EXPECT_THAT(refusal({0, 0, 8, 1, 0xFF, 0xFF, 0xFF, 0xFF, 1}), HasSubstr("4294967295 bytes, 1 follow"));
  Bytes damaged = gzip(idx({1000}, 7));
  damaged[damaged.size() - 6] ^= 1;  // its checksum
  EXPECT_THAT(refusal(damaged), HasSubstr("the gzip file is damaged"));
}

TEST(IdxTest, ImpossibleHeadersAreRefused) {
  const DataFolder folder;
  Bytes bytes(16, 0xFF);
  std::copy_n(idx({1, 1, 1}).begin(), 4, bytes.begin());
  const auto path = folder.write("file", bytes);
  EXPECT_THAT(message_of([&] { read_idx(path, 3); }), HasSubstr("4294967295 x 4294967295 x 4294967295"));
  EXPECT_THAT(message_of([&] { read_idx(folder.path(), 3); }), HasSubstr("it is a folder"));
  EXPECT_THAT(message_of([&] { read_idx(folder.path() / "none", 3); }),
              HasSubstr("none: No such file or directory"));
}

TEST(LoadIdxTest, BothSplits) {
  const DataFolder folder;
  folder.write("train-images-idx3-ubyte", idx({6, 4, 3}));
  folder.write("train-labels-idx1-ubyte.gz", gzip(idx({6}, 5)));
  folder.write("t10k-images-idx3-ubyte.gz", gzip(idx({2, 4, 3})));
  folder.write("t10k-labels-idx1-ubyte", idx({2}, 5));
  const Dataset train = load_idx(kSmall, Split::train, folder.path());
  EXPECT_EQ(train.name, "small");
  EXPECT_EQ(train.size(), 6u);
  EXPECT_EQ(train.labels, (Bytes{0, 1, 2, 3, 4, 0}));
  EXPECT_EQ(train.shape, kSmall.shape);
  EXPECT_THAT(train.image(2), testing::ElementsAre(24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35));
  EXPECT_EQ(train.mean, std::vector{0.5F});
  EXPECT_EQ(train.deviation, std::vector{0.25F});
  EXPECT_EQ(load_idx(kSmall, Split::test, folder.path()).size(), 2u);
  EXPECT_EQ(message_of([&] { (void)train.image(6); }), "small has no image 6 among 6");
}

TEST(LoadIdxTest, FilesThatDoNotFitAreRefused) {
  const DataFolder folder;
  const auto refusal = [&] { return message_of([&] { load_idx(kSmall, Split::train, folder.path()); }); };
  EXPECT_THAT(refusal(), AllOf(HasSubstr("small is not here"), HasSubstr(folder.path().string()),
                               HasSubstr("`starling data small` fetches it")));
  const auto images = folder.write("train-images-idx3-ubyte", idx({6, 4, 3})).string();
  const auto labels = folder.write("train-labels-idx1-ubyte", idx({5}, 5)).string();
  EXPECT_EQ(refusal(), images + " has 6 images and " + labels + " has 5 labels: they do not belong together");
  folder.write("train-labels-idx1-ubyte", idx({6}, 6));
  EXPECT_EQ(refusal(), labels + ": data set small: label 5 of image 5 is not below 5, the number of classes");
  folder.write("train-images-idx3-ubyte", idx({6, 3, 4}));
  EXPECT_EQ(refusal(), images + ": images of 3 x 4; those of small have 4 x 3");
}

TEST(DatasetTest, ChecksWhatDoesNotFitTogether) {
  const Dataset good{"d", Bytes(8), {0, 1}, {1, 2, 2}, 2, {0.5F}, {1.0F}};
  EXPECT_NO_THROW(good.check());
  const auto refusal = [&](auto change) {
    Dataset bad = good;
    change(bad);
    return message_of([&] { bad.check(); });
  };
  EXPECT_EQ(refusal([](Dataset& d) { d.images.pop_back(); }),
            "data set d: 2 labels need 8 bytes of images, there are 7");
  EXPECT_EQ(refusal([](Dataset& d) { d.labels[1] = 2; }),
            "data set d: label 2 of image 1 is not below 2, the number of classes");
  EXPECT_EQ(refusal([](Dataset& d) { d.classes = 0; }), "data set d: 0 classes; valid are 1 to 256");
  EXPECT_EQ(refusal([](Dataset& d) { d.mean.push_back(0); }),
            "data set d: 2 means and 1 deviations for 1 channels");
  EXPECT_EQ(refusal([](Dataset& d) { d.deviation[0] = 0; }), "data set d: a deviation is not positive");
  EXPECT_THAT(refusal([](Dataset& d) { d.shape.width = 0; }), HasSubstr("1 x 2 x 0 have no pixels"));
}

TEST(DatasetTest, CountsClasses) {
  EXPECT_EQ(count_classes(Bytes{0, 2, 2, 3}, 4), (std::vector<std::size_t>{1, 0, 2, 1}));
  EXPECT_THAT(message_of([] { count_classes(Bytes{4}, 4); }), HasSubstr("label 4 is not below 4"));
}

}  // namespace
}  // namespace starling::data
