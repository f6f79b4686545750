#include "starling/method/family/dsgd.h"
#include "starling/method/family/list.h"

namespace starling::method::family {

MethodFamily dsgd_awc() {
  return {"dsgd-awc",
          "adapt while communicating (D-PSGD): neighbours' models are averaged during forward and backward",
          {},
          [](const Parameters&) { return std::make_shared<DsgdAwc>(); }};
}

}  // namespace starling::method::family
