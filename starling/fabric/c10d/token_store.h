#pragma once

#include <chrono>
#include <string>

#include "starling/fabric/c10d/engine.h"

namespace starling::c10d_engine {

/// The store that our launcher hosts, as torch's engines want it: for those who know the job's token.
StorePtr make_token_store(const std::string& where, const std::string& token,
                          std::chrono::milliseconds timeout);

}  // namespace starling::c10d_engine
