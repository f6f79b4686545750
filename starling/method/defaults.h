#pragma once

/// The defaults of Trainer, drive(), the simulator, the command-line tool and Python.
namespace starling::method {

inline constexpr const char* kDefaultMethod = "dsgd-awc";
inline constexpr const char* kDefaultTopology = "one-peer-exponential";
inline constexpr const char* kDefaultOptimizer = "sgd";

}  // namespace starling::method
