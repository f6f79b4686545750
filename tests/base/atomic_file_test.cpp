#include "starling/base/atomic_file.h"

#include <array>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <iterator>
#include <string>
#include <sys/resource.h>
#include <vector>

#include "starling/base/error.h"

namespace starling {
namespace {

namespace fs = std::filesystem;

class AtomicFileTest : public testing::Test {
 protected:
  AtomicFileTest() {
    std::string name = (fs::temp_directory_path() / "starling_atomic_XXXXXX").string();
    folder = mkdtemp(name.data());
  }
  ~AtomicFileTest() override { fs::remove_all(folder); }

  static std::string content(const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  std::size_t files() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder), fs::directory_iterator{}));
  }

  fs::path folder;
};

constexpr std::array<std::uint8_t, 3> kNew = {'n', 'e', 'w'};

TEST_F(AtomicFileTest, WritesAndReplaces) {
  write_atomically(folder / "file", std::array<std::uint8_t, 5>{'f', 'i', 'r', 's', 't'});
  EXPECT_EQ(content(folder / "file"), "first");
  write_atomically(folder / "file", kNew);
  EXPECT_EQ(content(folder / "file"), "new");
  EXPECT_EQ(files(), 1u);
}

TEST_F(AtomicFileTest, AFailureLeavesTheOldFileAndNothingElse) {
  write_atomically(folder / "file", kNew);
  // Simulates a full disk: with RLIMIT_FSIZE, writing beyond the limit fails with EFBIG.
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, SIG_IGN);
  const rlimit small{1000, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  std::string message;
  try {
    write_atomically(folder / "file", std::vector<std::uint8_t>(5000, 'x'));
  } catch (const Error& error) {
    message = error.what();
  }
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(message, "cannot write " + (folder / "file").string() + ": File too large");
  EXPECT_EQ(content(folder / "file"), "new");
  EXPECT_EQ(files(), 1u);
}

TEST_F(AtomicFileTest, AMissingFolderAndAFolderInTheWayAreNamed) {
  const auto message = [](const fs::path& path) -> std::string {
    try {
      write_atomically(path, kNew);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(message(folder / "no" / "file"), testing::HasSubstr("no/file: No such file or directory"));
  fs::create_directory(folder / "taken");
  EXPECT_THAT(message(folder / "taken"), testing::HasSubstr("taken: Is a directory"));
  EXPECT_EQ(files(), 1u);
}

}  // namespace
}  // namespace starling
