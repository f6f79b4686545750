#include "starling/method/method.h"

namespace starling::method {

const MethodRequirements& Method::needs() const {
  std::call_once(asked_, [&] { needs_ = requirements(); });
  return needs_;
}

}  // namespace starling::method
