#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

// The layout of a checkpoint file: this head, a JSON table padded with spaces, and the parts, each aligned to
// 64 bytes and padded with zeros. A part's checksum covers its padding, the table has the parts' checksums,
// the head has the table's and its own: every byte is covered. Little-endian, like every machine that torch
// trains on.

namespace starling::record {

constexpr std::array<char, 8> kCheckpointMagic = {'S', 'T', 'A', 'R', 'L', 'I', 'N', '\x1a'};
constexpr std::uint32_t kCheckpointVersion = 1;
constexpr std::uint64_t kCheckpointAlignment = 64;

struct CheckpointHead {
  std::array<char, 8> magic = kCheckpointMagic;
  std::uint32_t version = kCheckpointVersion;
  std::uint32_t table_bytes = 0;
  std::uint64_t file_bytes = 0;
  std::uint64_t table_checksum = 0;
  std::array<std::uint64_t, 3> reserved = {};
  std::uint64_t checksum = 0;  // of everything before it; at this offset in every version
};
static_assert(sizeof(CheckpointHead) == kCheckpointAlignment);
constexpr std::size_t kCheckpointHeadChecked = offsetof(CheckpointHead, checksum);

constexpr std::uint64_t checkpoint_aligned(std::uint64_t bytes) {
  return (bytes + kCheckpointAlignment - 1) / kCheckpointAlignment * kCheckpointAlignment;
}

}  // namespace starling::record
