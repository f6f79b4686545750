#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "starling/base/floors.h"

// Numbers as text for users; files for programs use JsonWriter.

namespace starling::report {

/// A few significant digits without trailing zeros: 0.86864, 1.2e-07; whole numbers with all digits.
std::string compact(double number, int digits = 5);

/// 512 B, 1.5 kB, 3.25 GB: powers of 1000, as networks count.
std::string human_bytes(double bytes);

/// 4900, 12.3k, 33.8M, 2.4e+20.
std::string human_count(double count);

/// "1 rank", "4 ranks".
std::string counted(std::int64_t count, std::string_view noun);

/// 850 ns, 12.3 µs, 2.5 s, 3 min 20 s, 2 h 5 min.
std::string human_time(double seconds);

}  // namespace starling::report

namespace starling {
using report::compact;
using report::counted;
using report::human_bytes;
using report::human_count;
using report::human_time;
}  // namespace starling
