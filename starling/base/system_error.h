#pragma once

#include <string>
#include <system_error>

#include "starling/base/error.h"

namespace starling {

/// A call of the operating system failed: "cannot make a pipe: Too many open files".
class SystemError : public Error {
 public:
  SystemError(const std::string& what, int code)
      : Error(what + ": " + std::generic_category().message(code)), code_(code) {}

  /// As errno had it.
  int code() const { return code_; }

 private:
  int code_;
};

}  // namespace starling
