#pragma once

#include <string_view>

#include "starling/base/sha256.h"

namespace starling {

/// HMAC-SHA-256 (RFC 2104).
Sha256::Digest hmac_sha256(std::string_view key, std::string_view message);

/// Compares in constant time, so that the duration does not reveal where the texts differ.
bool equal_in_constant_time(std::string_view a, std::string_view b);

}  // namespace starling
