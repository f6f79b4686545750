#pragma once

#include <map>
#include <string>
#include <vector>

#include "tool/settings.h"

namespace starling::tool {

/// One training of a sweep.
struct SweepRun {
  std::vector<std::pair<std::string, std::string>> settings;  // by name, as text

  /// A folder's name: readable at its begin, and different for different settings.
  std::string folder() const;
  /// As options of `starling train`.
  std::vector<std::string> arguments() const;
  std::string setting(const std::string& name) const;
};

/// Values to try, by setting; the product of all of them.
using SweepValues = std::vector<std::pair<std::string, std::vector<std::string>>>;

/// Sets the values of a name, in place of those it had.
void put(SweepValues& values, const std::string& name, std::vector<std::string> texts);

/// Every combination of `common` with every combination of each case; a case's values take the place of the
/// common ones. Without cases, of `common` alone.
std::vector<SweepRun> plan_sweep(const SweepValues& common, const std::vector<SweepValues>& cases);

/// A file's values: `name = value`, `name = [value, ...]`, and `[[case]]` tables of these. Throws Error
/// naming line and key.
struct SweepFile {
  SweepValues common;
  std::vector<SweepValues> cases;
};
SweepFile read_sweep_file(const std::string& path, const Settings& known);

}  // namespace starling::tool
