#pragma once

#include <map>
#include <string>
#include <vector>

#include "tool/settings.h"

namespace starling::tool {

/// One training run of a sweep.
struct SweepRun {
  std::vector<std::pair<std::string, std::string>> settings;  // by name, as text

  /// A folder name that starts readably and differs for different settings.
  std::string folder() const;
  /// The settings as options of `starling train`.
  std::vector<std::string> arguments() const;
  std::string setting(const std::string& name) const;
};

/// The values to try, by setting; a sweep runs all combinations.
using SweepValues = std::vector<std::pair<std::string, std::vector<std::string>>>;

/// Sets the values of a name, replacing the previous ones.
void put(SweepValues& values, const std::string& name, std::vector<std::string> texts);

/// Every combination of `common` with every combination of each case; a case's values replace the common
/// ones. Without cases, only the combinations of `common`.
std::vector<SweepRun> plan_sweep(const SweepValues& common, const std::vector<SweepValues>& cases);

/// The values in a file: `name = value`, `name = [value, ...]`, and `[[case]]` tables of these. Reading
/// throws Error with line and key.
struct SweepFile {
  SweepValues common;
  std::vector<SweepValues> cases;
};
SweepFile read_sweep_file(const std::string& path, const Settings& known);

}  // namespace starling::tool
