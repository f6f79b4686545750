#pragma once

#include <cstdint>
#include <filesystem>
#include <span>

namespace starling {

/// Writes a whole file beside `path`, syncs it and renames it there: whatever happens in between, `path` is
/// the old file or the new one, never a part. Throws Error with the system's reason; nothing is left then.
void write_atomically(const std::filesystem::path& path, std::span<const std::uint8_t> bytes);

}  // namespace starling
