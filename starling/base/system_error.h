#pragma once

#include <string>
#include <system_error>

#include "starling/base/error.h"

namespace starling {

/// A failed call of the operating system: "cannot make a pipe: Too many open files".
class SystemError : public Error {
 public:
  SystemError(const std::string& what, int code)
      : Error(what + ": " + std::generic_category().message(code)), code_(code) {}

  /// The value of errno.
  int code() const { return code_; }

 private:
  int code_;
};

}  // namespace starling
