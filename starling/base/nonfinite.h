#pragma once

#include "starling/base/error.h"

namespace starling {

/// A gradient or a parameter of this rank is infinite or not a number.
class NonFinite : public Error {
 public:
  using Error::Error;
};

}  // namespace starling
