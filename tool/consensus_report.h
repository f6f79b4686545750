#pragma once

#include <string>
#include <vector>

#include "starling/report/table.h"
#include "starling/simulate/consensus.h"

namespace starling::tool {

/// The results as a table for users; `names` as the user typed them.
Table consensus_table(const std::vector<ConsensusResult>& results, const std::vector<std::string>& names,
                      const ConsensusOptions& options);

/// The results as a self-contained HTML page.
std::string consensus_page(const std::vector<ConsensusResult>& results, const std::vector<std::string>& names,
                           const ConsensusOptions& options, const std::string& command,
                           const std::string& date);

}  // namespace starling::tool
