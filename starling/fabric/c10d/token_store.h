#pragma once

#include <chrono>
#include <string>

#include "starling/base/floors.h"
#include "starling/fabric/c10d/engine.h"

namespace starling::fabric::c10d_engine {

/// A client of the launcher's store, which requires the job's token, with the interface of torch's stores.
StorePtr make_token_store(const std::string& where, const std::string& token,
                          std::chrono::milliseconds timeout);

}  // namespace starling::fabric::c10d_engine
