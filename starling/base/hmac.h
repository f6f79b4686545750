#pragma once

#include <string_view>

#include "starling/base/sha256.h"

namespace starling {

/// HMAC-SHA-256 (RFC 2104): only who has the key can compute it.
Sha256::Digest hmac_sha256(std::string_view key, std::string_view message);

/// Takes as long for a near miss as for any other: the time tells a guesser nothing.
bool equal_in_constant_time(std::string_view a, std::string_view b);

}  // namespace starling
