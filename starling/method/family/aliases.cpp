#include <fmt/format.h>

#include "starling/base/error.h"
#include "starling/method/family/dsgd.h"
#include "starling/method/family/list.h"

// Methods that are another one on a schedule, or with an optimizer, of a certain kind.
namespace starling::method::family {
namespace {

class GossipPga : public DsgdAtc {
 public:
  explicit GossipPga(Step h) : h_(h) {}
  std::string topology(const std::string& asked, const MethodSetting&) const override {
    return fmt::format("periodic({}, h={})", asked, h_);
  }

 private:
  Step h_;
};

class Hierarchical : public DsgdAtc {
 public:
  std::string topology(const std::string& asked, const MethodSetting& setting) const override {
    return fmt::format("hierarchical(outer={}, local={})", asked, setting.ranks_per_machine);
  }
};

class Dadam : public DsgdAwc {
 public:
  MethodRequirements requirements() const override { return {.optimizer = "adam"}; }
};

/// DecentDP's AccumAdam(W): AWC with moments that take up the mean gradient of s steps.
class AccumAdam : public DsgdAwc {
 public:
  AccumAdam(long s, bool decoupled) : s_(s), decoupled_(decoupled) {}
  MethodRequirements requirements() const override { return {.optimizer = "adam"}; }
  UpdatePtr make_update(DType dtype, std::size_t count, std::size_t segments,
                        const Hypers& hypers) const override {
    return make_accum_adam(dtype, count, segments, hypers, decoupled_, s_);
  }

 private:
  long s_;
  bool decoupled_;
};

MethodFamily accumulating(const std::string& name, const std::string& decay, bool decoupled) {
  return {name,
          "AWC with an Adam whose moments take up the mean gradient of s steps; weight decay " + decay,
          {{"s", "1", "steps per change of the moments; 1 is Adam itself"}},
          [decoupled](const Parameters& given) {
            return std::make_shared<AccumAdam>(static_cast<long>(given.integer("s", 1, 1'000'000)),
                                               decoupled);
          }};
}

}  // namespace

MethodFamily gossip_pga() {
  return {"gossip-pga",
          "dsgd-atc on periodic(h=): every h-th step takes the global mean instead",
          {{"h", "16", "steps from one global mean to the next"}},
          [](const Parameters& given) {
            return std::make_shared<GossipPga>(given.integer("h", 1, 1'000'000'000));
          }};
}

MethodFamily hierarchical() {
  return {"hierarchical",
          "dsgd-atc on hierarchical(outer=): the mean within a machine, neighbours between machines",
          {},
          [](const Parameters&) { return std::make_shared<Hierarchical>(); }};
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
