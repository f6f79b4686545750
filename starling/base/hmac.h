#pragma once

#include <string_view>

#include "starling/base/sha256.h"

namespace starling {

/// HMAC-SHA-256 (RFC 2104).
Sha256::Digest hmac_sha256(std::string_view key, std::string_view message);

/// Takes the same time wherever the texts differ, so that the time reveals nothing.
bool equal_in_constant_time(std::string_view a, std::string_view b);

}  // namespace starling
