#include "starling/method/family/list.h"
#include "starling/method/method.h"

namespace starling::method::family {
namespace {

/// Adapt while communicating (D-PSGD): x <- z + U(z, g(x)) with z = sum of w_j x_j, whose exchange needs no
/// gradient.
class DsgdAwc : public Method {
 public:
  void begin(Block& block) override { block.share(); }
  void adapt(Block& block) override { block.update_from_shared(); }
};

// dsgd-awc that requires a certain kind of optimizer.

class Dadam : public DsgdAwc {
 public:
  MethodRequirements requirements() const override { return {.optimizer = "adam"}; }
};

/// DecentDP's AccumAdam(W): dsgd-awc with moments that take in the mean gradient of s steps.
class AccumAdam : public DsgdAwc {
 public:
  AccumAdam(long s, bool decoupled) : s_(s), decoupled_(decoupled) {}
  MethodRequirements requirements() const override { return {.optimizer = "adam"}; }
  UpdatePtr make_update(ConstBuffer x, std::size_t segments, const Hypers& hypers) const override {
    return make_accum_adam(x, segments, hypers, decoupled_, s_);
  }

 private:
  long s_;
  bool decoupled_;
};

MethodFamily accumulating(const std::string& name, const std::string& decay, bool decoupled) {
  return {name,
          "AWC with an Adam whose moments take in the mean gradient of s steps; weight decay " + decay,
          {{"s", "1", "steps per change of the moments; 1 is Adam itself"}},
          [decoupled](const Parameters& given) {
            return std::make_shared<AccumAdam>(static_cast<long>(given.integer("s", 1, 1'000'000)),
                                               decoupled);
          }};
}

}  // namespace

MethodFamily dsgd_awc() {
  return {"dsgd-awc",
          "adapt while communicating (D-PSGD): neighbors' models are averaged during forward and backward",
          {},
          [](const Parameters&) { return std::make_shared<DsgdAwc>(); }};
}

MethodFamily dadam() {
  return {"dadam", "dsgd-awc with Adam or AdamW, whose moments stay local", {}, [](const Parameters&) {
            return std::make_shared<Dadam>();
          }};
}

MethodFamily accum_adam() {
  return accumulating("accum-adam", "is part of the gradient", false);
}
MethodFamily accum_adamw() {
  return accumulating("accum-adamw", "is decoupled", true);
}

}  // namespace starling::method::family
