#include "starling/codec/registry.h"
#include "starling/method/family/compressed_average.h"
#include "starling/method/family/list.h"

namespace starling::method::family {
namespace {

/// Bagua's low-precision decentralized ring: W is this rank's model as its neighbors know it, N the weighted
/// sum of the neighbors' models as this rank knows them. d = (x + U) + N - (1 + their weights) W is quantized
/// and sent; all ranks apply what was sent, and then x is W.
class LowPrecisionRing : public Method {
 public:
  explicit LowPrecisionRing(CodecPtr codec) : codec_(std::move(codec)) {}

  // The first exchange sends the models themselves.
  void begin(Block& block) override {
    if (stage(block) == kKnown) return;
    stage(block) = kAsking;
    block.share();
  }

  void adapt(Block& block) override {
    const Buffer known = block.state("known");
    const Buffer around = block.state("around");
    if (stage(block) == kAsking) meet_neighbors(block, known, around);
    block.update();
    const double weights = block.numbers("weights")[0];
    const Buffer difference = block.state("difference");
    block.combine(difference, {{block.x, 1}, {around, 1}, {known, -1 - weights}});
    const EncodedBlock encoded(*codec_, block);
    const Buffer message = block.make_state("message", DType::uint8, encoded.bytes());
    encoded.encode(block, difference, {}, 0, message);
    block.share(message);
  }

  void combine(Block& block) override {
    const EncodedBlock encoded(*codec_, block);
    const Buffer known = block.state("known");
    const SharedExchange shared = block.take_shared();
    const Buffer message = block.make_state("message", DType::uint8, encoded.bytes());
    const auto terms = shared.arrived_terms(message);
    for (std::size_t i = 0; i < terms.size(); ++i)
      encoded.decode_add(block, message.at(terms[i].data), i == 0 ? 1 : terms[i].weight,
                         i == 0 ? known : block.state("around"));
    block.copy(block.x, known);
  }

  void view_changed(Block& block) override { stage(block) = kUnknown; }
  void x_replaced(Block& block) override { stage(block) = kUnknown; }

  MethodRequirements requirements() const override {
    return {.schedule = ScheduleKind::ring,
            .exact_messages_because = "its codec makes the messages",
            .no_losses_because =
                "neighbors follow each other by differences, and a lost one is never made up "
                "for; use dsgd-atc"};
  }

 private:
  static constexpr double kUnknown = 0;
  static constexpr double kAsking = 1;
  static constexpr double kKnown = 2;
  static double& stage(Block& block) { return block.numbers("stage")[0]; }

  static void meet_neighbors(Block& block, Buffer known, Buffer around) {
    const SharedExchange shared = block.take_shared();
    const auto terms = shared.arrived_terms(block.x);
    const std::vector<Term> others(terms.begin() + 1, terms.end());
    block.combine(around, others);
    double& weights = block.numbers("weights")[0];
    weights = 0;
    for (const Term& term : others) weights += term.weight;
    block.copy(known, block.x);
    stage(block) = kKnown;
  }

  CodecPtr codec_;
};

}  // namespace

MethodFamily low_precision_ring() {
  return {"low-precision-ring",
          "DSGD on a ring with one-byte differences between neighbors' models (Bagua)",
          {{"codec", "uint8", "any codec", ParameterKind::codec}},
          [](const Parameters& given) {
            return std::make_shared<LowPrecisionRing>(make_codec(given.spec("codec").to_string()));
          }};
}

}  // namespace starling::method::family
