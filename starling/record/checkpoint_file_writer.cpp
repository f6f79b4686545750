#include <algorithm>
#include <array>
#include <cerrno>
#include <fcntl.h>
#include <fmt/format.h>
#include <functional>
#include <limits>
#include <optional>
#include <set>
#include <sys/uio.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "starling/base/atomic_file.h"
#include "starling/base/checksum.h"
#include "starling/base/error.h"
#include "starling/kernel/device.h"
#include "starling/record/checkpoint_file.h"
#include "starling/record/checkpoint_layout.h"
#include "starling/record/checkpoint_phase.h"

namespace starling::record {
namespace {

constexpr std::size_t kWriteChunk = 1 << 20;  // still in the cache when it is written after its checksum
constexpr std::array<std::byte, kCheckpointAlignment> kZeros{};
constexpr const char* kRankLabel = "rank";

// Collects small pieces, so that a thousand biases do not cost a thousand system calls.
class Gather {
 public:
  Gather(const AtomicFile& file, std::uint64_t offset) : file_(file), offset_(offset) {}

  void add(std::span<const std::byte> bytes) {
    if (bytes.empty()) return;
    pieces_.push_back({const_cast<std::byte*>(bytes.data()), bytes.size()});
    waiting_ += bytes.size();
    if (waiting_ >= kWriteChunk || pieces_.size() == kMost) flush();
  }

  void flush() {
    std::size_t first = 0;
    while (first < pieces_.size()) {
      const ssize_t count = pwritev(file_.descriptor(), &pieces_[first],
                                    static_cast<int>(pieces_.size() - first), static_cast<off_t>(offset_));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) file_.fail();
      offset_ += static_cast<std::uint64_t>(count);
      auto done = static_cast<std::size_t>(count);
      for (; first < pieces_.size() && done >= pieces_[first].iov_len; ++first)
        done -= pieces_[first].iov_len;
      if (done == 0) continue;
      pieces_[first].iov_base = static_cast<std::byte*>(pieces_[first].iov_base) + done;
      pieces_[first].iov_len -= done;
    }
    pieces_.clear();
    waiting_ = 0;
    if (offset_ - started_ >= kAhead) start_disk();
  }

 private:
  static constexpr std::size_t kMost = 512;         // systems accept 1024
  static constexpr std::uint64_t kAhead = 8 << 20;  // bytes

  // Starts writing to disk while the next chunks are processed, instead of at the final sync. Only a hint.
  void start_disk() {
    sync_file_range(file_.descriptor(), static_cast<off_t>(started_), static_cast<off_t>(offset_ - started_),
                    SYNC_FILE_RANGE_WRITE);
    started_ = offset_;
  }

  const AtomicFile& file_;
  std::uint64_t offset_;
  std::uint64_t started_ = offset_;
  std::vector<iovec> pieces_;
  std::size_t waiting_ = 0;
};

// Checksums have a fixed width, so that the size of the table is known before them.
std::string table_text(const Labels& labels, std::span<const StatePart> parts,
                       std::span<const std::uint64_t> checksums) {
  nlohmann::json table = {{"labels", nlohmann::json::array()}, {"parts", nlohmann::json::array()}};
  for (const auto& [label, text] : labels) table["labels"].push_back({label, text});
  for (std::size_t i = 0; i < parts.size(); ++i)
    table["parts"].push_back({{"name", parts[i].name},
                              {"type", parts[i].type},
                              {"bytes", parts[i].bytes.size()},
                              {"checksum", checksum_text(checksums[i])}});
  try {
    std::string text = table.dump();
    text.resize(checkpoint_aligned(text.size()), ' ');
    return text;
  } catch (const nlohmann::json::exception& error) {
    throw InvalidArgument(
        fmt::format("labels and names of parts in a checkpoint must be UTF-8: {}", error.what()));
  }
}

void refuse_equal_names(std::span<const StatePart> parts) {
  std::set<std::string_view> names;
  for (const StatePart& part : parts)
    if (!names.insert(part.name).second)
      throw InvalidArgument(fmt::format("two parts of a checkpoint are called '{}'", part.name));
}

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

// The bytes of a part in host memory; those on a device are copied to `copy`.
std::span<const std::byte> on_host(const StatePart& part, std::vector<std::byte>& copy) {
  if (!part.device) return part.bytes;
  copy.resize(part.bytes.size());
  const kernel::DeviceScope scope(*part.device);
  kernel::device().copy_to_host(copy.data(), part.bytes.data(), copy.size());
  kernel::device().synchronize();
  return copy;
}

// The rank whose file this is; empty if the file does not exist or is something else.
std::optional<std::string> owner_of(const std::filesystem::path& path) {
  try {
    return find_label(CheckpointFile(path).labels(), kRankLabel);
  } catch (const Error&) {
    return std::nullopt;
  }
}

using MayReplace = std::function<void()>;

// `may_replace` is called if the file exists already, and throws if it must be kept.
CheckpointFileMark write_file(const std::filesystem::path& path, const Labels& labels,
                              std::span<const StatePart> parts, const std::string& mark,
                              const MayReplace& may_replace) {
  refuse_equal_names(parts);
  std::vector<std::uint64_t> checksums(parts.size());
  std::string table = table_text(labels, parts, checksums);
  if (table.size() > std::numeric_limits<std::uint32_t>::max())
    throw InvalidArgument(fmt::format("{}: labels and names of parts take {} bytes; 4 GiB is the most",
                                      path.string(), table.size()));
  CheckpointHead head;
  head.table_bytes = static_cast<std::uint32_t>(table.size());
  head.file_bytes = sizeof(head) + table.size();
  for (const StatePart& part : parts) head.file_bytes += checkpoint_aligned(part.bytes.size());

  AtomicFile file(path, mark);
  checkpoint_reached(CheckpointPhase::opened);
  Gather out(file, sizeof(head) + table.size());
  std::vector<std::byte> copy;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    Checksum checksum;
    for (auto rest = on_host(parts[i], copy); !rest.empty();) {
      const auto chunk = rest.first(std::min(rest.size(), kWriteChunk));
      checksum.add(chunk);
      out.add(chunk);
      rest = rest.subspan(chunk.size());
    }
    const std::size_t bytes = parts[i].bytes.size();
    const auto zeros = std::span(kZeros).first(checkpoint_aligned(bytes) - bytes);
    checksums[i] = checksum.add(zeros).value();
    out.add(zeros);
    if (parts[i].device) out.flush();  // the next part may replace the copy
    if (i == parts.size() / 2) checkpoint_reached(CheckpointPhase::half_written);
  }
  out.flush();

  table = table_text(labels, parts, checksums);
  head.table_checksum = checksum_of(bytes_of(table));
  head.checksum = checksum_of(std::as_bytes(std::span(&head, 1)).first(kCheckpointHeadChecked));
  Gather front(file, 0);
  front.add(std::as_bytes(std::span(&head, 1)));
  front.add(bytes_of(table));
  front.flush();
  checkpoint_reached(CheckpointPhase::written);
  file.sync();
  checkpoint_reached(CheckpointPhase::synced);
  if (may_replace && !file.place_if_free()) may_replace();
  file.commit();
  checkpoint_reached(CheckpointPhase::renamed);
  return {head.file_bytes, head.checksum};
}

}  // namespace

CheckpointFileMark write_checkpoint_file(const std::filesystem::path& path, const Labels& labels,
                                         std::span<const StatePart> parts, const std::string& mark) {
  return write_file(path, labels, parts, mark, {});
}

CheckpointFileMark write_own_checkpoint_file(const std::filesystem::path& path, Rank rank, Labels labels,
                                             std::span<const StatePart> parts) {
  labels.emplace_back(kRankLabel, std::to_string(rank));
  return write_file(path, labels, parts, {}, [&] {
    if (const auto owner = owner_of(path); owner && *owner != std::to_string(rank))
      throw InvalidArgument(fmt::format(
          "{} is the checkpoint of rank {}, and this is rank {}: each rank saves to a file of its "
          "own, for example with the rank in its name; remove this one if it is not needed",
          path.string(), *owner, rank));
  });
}

}  // namespace starling::record
