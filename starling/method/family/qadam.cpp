#include <cmath>
#include <cstring>

#include "starling/codec/registry.h"
#include "starling/kernel/reduce.h"
#include "starling/method/family/compressed_average.h"
#include "starling/method/family/list.h"

namespace starling::methods {
namespace {

/// QAdam: Adam on the mean gradient for `warmup` steps; then its second moment stays as it is, and the first
/// moments, each with its own rank's gradient, are averaged in bytes. Both bias corrections go on with the
/// step.
class QAdam : public Method {
 public:
  explicit QAdam(Step warmup)
      : warmup_(warmup), average_({make_codec("uint8"), CompressedAverage::Way::dealt, false, 0}) {}

  void gradient(Block& block) override {
    if (warms_up(block)) {
      const MutableBlock contributors = block.scalar("contributors");
      write_number(contributors, block.skipped ? 0 : 1);
      if (block.skipped) std::memset(block.gradient.data, 0, block.count() * size_of(block.dtype()));
      block.channel->reduce(pieces_of(std::vector<MutableBlock>{block.gradient, contributors}),
                            Reduction::sum);
      return;
    }
    if (!block.skipped) each(block, [](auto& e) { e.m = e.beta1 * e.m + (1 - e.beta1) * e.g; });
    average_.start(block, block.state("m"), !block.skipped);
  }

  void gradient_done(Block& block) override {
    double contributors = 0;
    if (warms_up(block)) {
      contributors = read_number(block.scalar("contributors"));
      if (contributors > 0)
        starling::scale(block.dtype(), block.gradient.data, 1 / contributors, block.count());
    } else {
      if (!average_.proceed(block, block.state("m"))) return;
      contributors = static_cast<double>(average_.contributors(block));
    }
    block.skipped = contributors == 0;
    block.activate();
  }

  void adapt(Block& block) override {
    if (block.skipped) return;
    const auto t = block.numbers("t");
    t[0] += 1;
    if (warms_up(block))
      each(block, [](auto& e) {
        e.m = e.beta1 * e.m + (1 - e.beta1) * e.g;
        e.v = e.beta2 * e.v + (1 - e.beta2) * e.g * e.g;
      });
    each(block, [now = t[0]](auto& e) {
      const double m = e.m / (1 - std::pow(e.beta1, now));
      const double v = e.v / (1 - std::pow(e.beta2, now));
      e.x -= e.lr * (e.decay * e.x + m / (std::sqrt(v) + e.eps));
    });
  }

  bool sends_gradients() const override { return true; }
  // Moments travel, which a gradient that is changed later cannot reach.
  bool averages_gradients() const override { return false; }
  bool needs_schedule() const override { return false; }
  std::string needs_optimizer() const override { return "adam"; }
  std::string exact_messages_because() const override { return "its codec makes the messages"; }

 private:
  bool warms_up(const Block& block) const { return block.step < warmup_; }

  /// Everything of one element.
  struct Element {
    double lr, decay, beta1, beta2, eps;
    double x, g, m, v;
  };

  template <typename T, typename Body>
  static void each_as(Block& block, const Body& body) {
    auto* x = static_cast<T*>(block.x.data);
    const auto* g = static_cast<const T*>(block.gradient.data);
    auto* m = static_cast<T*>(block.state("m").data);
    auto* v = static_cast<T*>(block.state("v").data);
    for (const Segment& segment : block.segments) {
      const Hyper& hyper = (*block.hypers)[segment.group];
      for (std::size_t i = segment.begin; i < segment.begin + segment.count; ++i) {
        const double coupled = hyper.decoupled ? 0 : hyper.weight_decay;
        const double gradient =
            block.gradient_scale * static_cast<double>(g[i]) + coupled * static_cast<double>(x[i]);
        Element e{hyper.lr,
                  hyper.weight_decay - coupled,
                  hyper.beta1,
                  hyper.beta2,
                  hyper.eps,
                  static_cast<double>(x[i]),
                  gradient,
                  static_cast<double>(m[i]),
                  static_cast<double>(v[i])};
        body(e);
        x[i] = static_cast<T>(e.x);
        m[i] = static_cast<T>(e.m);
        v[i] = static_cast<T>(e.v);
      }
    }
  }
  template <typename Body>
  static void each(Block& block, const Body& body) {
    if (block.dtype() == DType::float64)
      each_as<double>(block, body);
    else
      each_as<float>(block, body);
  }

  Step warmup_;
  CompressedAverage average_;
};

}  // namespace

MethodFamily qadam() {
  return {"qadam",
          "Adam on mean gradients for a while, then with its moments averaged in bytes",
          {{"warmup", "100", "steps with exact averages, in which the second moment is found"}},
          [](const Parameters& given) {
            return std::make_shared<QAdam>(given.integer("warmup", 1, 1'000'000'000));
          }};
}

}  // namespace starling::methods
