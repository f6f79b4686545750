#include "starling/record/checkpoint_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "starling/base/checksum.h"
#include "starling/base/error.h"
#include "starling/record/checkpoint_layout.h"

namespace starling::record {
namespace {

constexpr std::size_t kReadChunk = 1 << 20;
constexpr std::size_t kNamesShown = 8;

std::string names_of(const std::vector<CheckpointFile::Part>& parts) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < std::min(parts.size(), kNamesShown); ++i) names.push_back(parts[i].name);
  if (names.empty()) return "none";
  const std::string more =
      parts.size() > kNamesShown ? fmt::format(" and {} more", parts.size() - kNamesShown) : "";
  return join_words(names) + more;
}

}  // namespace

std::optional<std::string> find_label(const Labels& labels, std::string_view label) {
  const auto found = std::ranges::find(labels, label, &Labels::value_type::first);
  if (found == labels.end()) return std::nullopt;
  return found->second;
}

CheckpointFile::CheckpointFile(std::filesystem::path path) : path_(std::move(path)) {
  file_ = open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  if (file_ < 0) throw Error(fmt::format("cannot read {}: {}", path_.string(), std::strerror(errno)));
  try {
    read_header();
  } catch (...) {
    close(file_);
    throw;
  }
}

CheckpointFile::~CheckpointFile() {
  if (file_ >= 0) close(file_);
}

CheckpointFile::CheckpointFile(CheckpointFile&& other) noexcept
    : path_(std::move(other.path_)),
      file_(std::exchange(other.file_, -1)),
      labels_(std::move(other.labels_)),
      parts_(std::move(other.parts_)),
      mark_(other.mark_) {}

CheckpointFile& CheckpointFile::operator=(CheckpointFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(file_, other.file_);
  std::swap(labels_, other.labels_);
  std::swap(parts_, other.parts_);
  std::swap(mark_, other.mark_);
  return *this;
}

void CheckpointFile::read_header() {
  struct stat status {};
  if (fstat(file_, &status) != 0) refuse(fmt::format("cannot be read: {}", std::strerror(errno)));
  if (!S_ISREG(status.st_mode)) refuse("is not a file");
  const auto size = static_cast<std::uint64_t>(status.st_size);
  CheckpointHead head;
  const auto head_bytes = std::as_writable_bytes(std::span(&head, 1));
  const std::size_t there = std::min<std::uint64_t>(size, sizeof(head));
  read_at(0, head_bytes.first(there));
  if (std::memcmp(&head, kCheckpointMagic.data(), std::min(there, kCheckpointMagic.size())) != 0)
    refuse("is not a Starling checkpoint");
  if (there < sizeof(head)) refuse(fmt::format("is truncated: {} of at least {} bytes", size, sizeof(head)));
  if (checksum_of(head_bytes.first(kCheckpointHeadChecked)) != head.checksum) refuse("is corrupt: its head");
  if (head.version != kCheckpointVersion)
    refuse(fmt::format("was written by a newer version ({}; this one reads {})", head.version,
                       kCheckpointVersion));
  if (size < head.file_bytes) refuse(fmt::format("is truncated: {} of {} bytes", size, head.file_bytes));
  if (size > head.file_bytes)
    refuse(fmt::format("is corrupt: it has {} bytes instead of {}", size, head.file_bytes));
  if (head.table_bytes > size - sizeof(head))
    refuse(
        fmt::format("is corrupt: its head says that {} of {} bytes are its table", head.table_bytes, size));
  mark_ = {head.file_bytes, head.checksum};

  std::string text(head.table_bytes, '\0');
  const auto table_bytes = std::as_writable_bytes(std::span(text));
  read_at(sizeof(head), table_bytes);
  if (checksum_of(table_bytes) != head.table_checksum) refuse("is corrupt: its table of parts");
  std::uint64_t offset = sizeof(head) + text.size();
  try {
    const auto table = nlohmann::json::parse(text);
    for (const auto& label : table.at("labels"))
      labels_.emplace_back(label.at(0).get<std::string>(), label.at(1).get<std::string>());
    for (const auto& entry : table.at("parts")) {
      Part part{entry.at("name"), entry.at("type"), entry.at("bytes"), offset,
                parse_checksum(entry.at("checksum").get<std::string>())};
      if (part.bytes > size - offset)
        refuse(fmt::format("is corrupt: its part {} would have {} of its {} bytes", part.name, part.bytes,
                           size));
      offset += checkpoint_aligned(part.bytes);
      if (offset > size) refuse(fmt::format("is corrupt: its part {} ends beyond the file", part.name));
      parts_.push_back(std::move(part));
    }
  } catch (const nlohmann::json::exception& error) {
    refuse(fmt::format("is corrupt: its table of parts: {}", error.what()));
  }
  if (offset != head.file_bytes) refuse("is corrupt: its parts do not fill it");
}

std::string CheckpointFile::label(std::string_view label) const {
  if (auto text = find_label(labels_, label)) return *text;
  refuse(fmt::format("has no label {}", label));
}

const CheckpointFile::Part* CheckpointFile::find(std::string_view part) const {
  const auto found = std::ranges::find(parts_, part, &Part::name);
  return found == parts_.end() ? nullptr : &*found;
}

const CheckpointFile::Part& CheckpointFile::demand(std::string_view part) const {
  if (const Part* found = find(part)) return *found;
  refuse(fmt::format("has no part {}; its parts are {}", part, names_of(parts_)));
}

void CheckpointFile::demand_size(const Part& part, std::uint64_t bytes) const {
  if (part.bytes != bytes)
    refuse(fmt::format("has {} bytes of {}, but {} are expected", part.bytes, part.name, bytes));
}

std::vector<std::byte> CheckpointFile::read(std::string_view part) const {
  const Part& found = demand(part);
  std::vector<std::byte> bytes(found.bytes);
  read_checked(found, bytes);
  return bytes;
}

void CheckpointFile::read_into(std::string_view part, std::span<std::byte> bytes) const {
  const Part& found = demand(part);
  demand_size(found, bytes.size());
  read_checked(found, bytes);
}

void CheckpointFile::check(std::span<const StatePlace> places) const {
  for (const StatePlace& place : places) {
    const Part& part = demand(place.name);
    if (part.type != place.type)
      refuse(fmt::format("has {} as {}, but {} is expected", part.name, part.type, place.type));
    demand_size(part, place.bytes.size());
  }
}

void CheckpointFile::read_into(std::span<const StatePlace> places) const {
  check(places);
  for (const StatePlace& place : places) read_checked(demand(place.name), place.bytes);
}

void CheckpointFile::verify() const {
  for (const Part& part : parts_) read_checked(part, {});
}

void CheckpointFile::read_checked(const Part& part, std::span<std::byte> bytes) const {
  std::vector<std::byte> scratch(bytes.empty() ? std::min<std::uint64_t>(part.bytes, kReadChunk) : 0);
  Checksum checksum;
  for (std::uint64_t done = 0; done < part.bytes;) {
    const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(part.bytes - done, kReadChunk));
    const auto chunk = bytes.empty() ? std::span(scratch).first(count) : bytes.subspan(done, count);
    read_at(part.offset + done, chunk);
    checksum.add(chunk);
    done += count;
  }
  std::array<std::byte, kCheckpointAlignment> gap;
  const auto zeros = std::span(gap).first(checkpoint_aligned(part.bytes) - part.bytes);
  read_at(part.offset + part.bytes, zeros);
  if (checksum.add(zeros).value() != part.checksum) refuse(fmt::format("is corrupt: its part {}", part.name));
}

void CheckpointFile::read_at(std::uint64_t offset, std::span<std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t count = pread(file_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) refuse(fmt::format("cannot be read: {}", std::strerror(errno)));
    if (count == 0) refuse(fmt::format("is truncated: it ends at {}", offset));
    offset += static_cast<std::uint64_t>(count);
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
}

void CheckpointFile::refuse(const std::string& why) const {
  throw Error(fmt::format("{} {}", path_.string(), why));
}

}  // namespace starling::record
