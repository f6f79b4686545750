#include "starling/data/packed_file.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <string_view>
#include <zlib.h>

#include "starling/base/error.h"
#include "starling/base/sha256.h"

namespace starling::data {
namespace {

constexpr std::size_t kPiece = std::size_t{1} << 20;

gzFile handle(void* file) {
  return static_cast<gzFile>(file);
}

}  // namespace

void PackedFile::Close::operator()(void* file) const {
  gzclose_r(handle(file));
}

PackedFile::PackedFile(const std::filesystem::path& path) : name_(path.string()) {
  // Opening a folder succeeds, but reading it fails with a meaningless message.
  if (std::filesystem::is_directory(path)) throw Error(fmt::format("cannot read {}: it is a folder", name_));
  errno = 0;
  file_.reset(gzopen(name_.c_str(), "rbe"));
  if (!file_)
    throw Error(fmt::format("cannot read {}: {}", name_, errno != 0 ? std::strerror(errno) : "no memory"));
  gzbuffer(handle(file_.get()), 1U << 18);
}

std::size_t PackedFile::read(std::span<std::uint8_t> bytes) {
  std::size_t total = 0;
  while (total < bytes.size()) {
    const std::size_t wanted = std::min(bytes.size() - total, std::size_t{1} << 30);
    const int count = gzread(handle(file_.get()), bytes.data() + total, static_cast<unsigned>(wanted));
    int problem = Z_OK;
    const char* text = gzerror(handle(file_.get()), &problem);
    if (count < 0 || problem == Z_BUF_ERROR) {
      const std::string reason = problem == Z_BUF_ERROR ? "the gzip file is cut off"
                                 : problem == Z_ERRNO   ? std::strerror(errno)
                                                        : fmt::format("the gzip file is damaged ({})", text);
      throw Error(fmt::format("cannot read {}: {}", name_, reason));
    }
    if (count == 0) break;
    total += static_cast<std::size_t>(count);
  }
  return total;
}

std::size_t PackedFile::append(std::vector<std::uint8_t>& bytes, std::size_t most) {
  const std::size_t before = bytes.size();
  while (bytes.size() - before < most) {
    const std::size_t begin = bytes.size();
    const std::size_t piece = std::min(most - (begin - before), std::max(kPiece, begin));
    bytes.resize(begin + piece);
    const std::size_t count = read(std::span(bytes).subspan(begin));
    bytes.resize(begin + count);
    if (count < piece) break;
  }
  return bytes.size() - before;
}

std::optional<std::filesystem::path> find_packed(const std::filesystem::path& path) {
  for (const std::string ending : {"", ".gz"}) {
    std::filesystem::path candidate = path;
    candidate += ending;
    std::error_code ignored;
    if (std::filesystem::exists(candidate, ignored)) return candidate;
  }
  return std::nullopt;
}

std::vector<std::uint8_t> read_packed(const std::filesystem::path& path) {
  PackedFile file(path);
  std::vector<std::uint8_t> bytes;
  file.append(bytes, SIZE_MAX);
  return bytes;
}

std::string packed_sha256(const std::filesystem::path& path) {
  PackedFile file(path);
  Sha256 digest;
  std::vector<std::uint8_t> piece(kPiece);
  for (std::size_t count = piece.size(); count == piece.size();) {
    count = file.read(piece);
    digest.update(std::span(piece).first(count));
  }
  return digest.finish();
}

// A header has 512 bytes: the name first, the size in octal digits at 124, "ustar" at 257, the beginning of a
// long name at 345. Contents are padded to whole blocks.
std::optional<std::span<const std::uint8_t>> tar_member(std::span<const std::uint8_t> tar,
                                                        const std::string& member,
                                                        const std::string& archive) {
  constexpr std::size_t kBlock = 512;
  const auto text = [&](std::size_t at, std::size_t size) {
    const std::string_view field(reinterpret_cast<const char*>(tar.data()) + at, size);
    return std::string(field.substr(0, field.find('\0')));
  };
  for (std::size_t at = 0; at + kBlock <= tar.size();) {
    if (tar[at] == 0) return std::nullopt;  // a block of zeros ends the archive
    if (text(at + 257, 5) != "ustar") throw Error(fmt::format("{} is not a tar archive", archive));
    const std::string prefix = text(at + 345, 155);
    const std::string name = (prefix.empty() ? "" : prefix + "/") + text(at, 100);
    const std::string digits = text(at + 124, 12);
    const std::size_t size = std::strtoull(digits.c_str(), nullptr, 8);
    const std::size_t begin = at + kBlock;
    if (size > tar.size() - begin) throw Error(fmt::format("{} is cut off inside {}", archive, name));
    if (name == member) return tar.subspan(begin, size);
    at = begin + (size + kBlock - 1) / kBlock * kBlock;
  }
  return std::nullopt;
}

}  // namespace starling::data
