#pragma once

#include <string>

#include "starling/record/checkpoint_folder.h"

namespace starling::record {

/// The manifest as JSON, with a checksum of itself.
std::string manifest_text(const CheckpointInfo& info);

/// Reads folder/manifest.json; throws Error if it is missing, damaged, edited, or of a newer version.
CheckpointInfo read_manifest(const std::filesystem::path& folder);

}  // namespace starling::record
