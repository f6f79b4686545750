#include "starling/report/number_text.h"

#include <cmath>
#include <cstdint>
#include <fmt/format.h>
#include <span>

namespace starling::report {
namespace {

constexpr double kWholeInFull = 1e15;

/// Three significant digits, in the largest unit in which the number is at least one; rounding up may need
/// the next unit.
std::string in_units(double number, std::span<const char* const> units) {
  if (!std::isfinite(number)) return compact(number);
  std::size_t unit = 0;
  double scaled = number;
  // 999.5 would print as 1000 with three digits.
  while (std::abs(scaled) >= 999.5 && unit + 1 < units.size()) {
    scaled /= 1000;
    ++unit;
  }
  return compact(scaled, 3) + units[unit];
}

std::string two_units(double seconds, double large, const char* large_unit, double small,
                      const char* small_unit) {
  auto smalls = static_cast<std::int64_t>(std::llround(seconds / small));
  const auto per_large = static_cast<std::int64_t>(large / small);
  const std::int64_t larges = smalls / per_large;
  smalls %= per_large;
  return smalls == 0 ? fmt::format("{} {}", larges, large_unit)
                     : fmt::format("{} {} {} {}", larges, large_unit, smalls, small_unit);
}

}  // namespace

std::string compact(double number, int digits) {
  if (number == 0) return "0";  // also -0
  if (std::abs(number) < kWholeInFull && number == std::trunc(number)) return fmt::format("{:.0f}", number);
  // "{:g}" would turn 123456.7 into 1.2346e+05, which is hard to read.
  if (std::abs(number) < kWholeInFull && std::abs(number) >= std::pow(10, digits) - 0.5)
    return fmt::format("{:.0f}", number);
  return fmt::format("{:.{}g}", number, digits);
}

std::string counted(std::int64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string human_bytes(double bytes) {
  constexpr const char* kUnits[] = {" B", " kB", " MB", " GB", " TB", " PB", " EB"};
  return in_units(bytes, kUnits);
}

std::string human_count(double count) {
  constexpr const char* kUnits[] = {"", "k", "M", "G", "T", "P"};
  if (std::abs(count) < 9999.5) return compact(count, 4);
  if (std::abs(count) >= 9.995e17) return compact(count, 3);
  return in_units(count, kUnits);
}

std::string human_time(double seconds) {
  if (!std::isfinite(seconds)) return compact(seconds);
  if (seconds < 0) return "-" + human_time(-seconds);
  if (seconds == 0) return "0 s";
  if (seconds < 59.95) {
    constexpr const char* kUnits[] = {" ns", " µs", " ms", " s"};
    return in_units(seconds * 1e9, kUnits);
  }
  if (seconds < 3599.5) return two_units(seconds, 60, "min", 1, "s");
  if (seconds < 86370) return two_units(seconds, 3600, "h", 60, "min");
  return two_units(seconds, 86400, "d", 3600, "h");
}

}  // namespace starling::report
