#include <fmt/format.h>

#include "starling/base/error.h"
#include "starling/codec/registry.h"
#include "starling/kernel/copy.h"
#include "starling/method/family/compressed_average.h"
#include "starling/method/family/list.h"

namespace starling::methods {
namespace {

/// Bagua's low-precision decentralized ring: with W what the others know of this rank and N the weighted sum
/// of what it knows of its neighbours, d = (x + U) + N - (1 + their weights) W is sent quantised; everybody
/// adds what was sent, and x is W.
class LowPrecisionRing : public Method {
 public:
  explicit LowPrecisionRing(CodecPtr codec) : codec_(std::move(codec)) {}

  // The first exchange is of the models themselves.
  void begin(Block& block) override {
    if (stage(block) == kKnown) return;
    stage(block) = kAsking;
    block.share();
  }

  void adapt(Block& block) override {
    const MutableBlock known = block.state("known");
    const MutableBlock around = block.state("around");
    if (stage(block) == kAsking) meet_neighbors(block, known, around);
    block.update();
    const double weights = block.numbers("weights")[0];
    const MutableBlock difference = block.state("difference");
    const Term way[] = {{block.x.data, 1}, {around.data, 1}, {known.data, -1 - weights}};
    starling::combine(block.dtype(), difference.data, way, block.count());
    const EncodedBlock encoded(*codec_, block);
    const MutableBlock message = block.make_state("message", DType::uint8, encoded.bytes());
    encoded.encode(block, difference.data, nullptr, 0, static_cast<std::byte*>(message.data));
    block.channel->share(message);
  }

  void combine(Block& block) override {
    const EncodedBlock encoded(*codec_, block);
    const MutableBlock known = block.state("known");
    const auto terms = block.channel->shared(block.make_state("message", DType::uint8, encoded.bytes()));
    for (std::size_t i = 0; i < terms.size(); ++i)
      encoded.decode_add(block, static_cast<const std::byte*>(terms[i].data), i == 0 ? 1 : terms[i].weight,
                         i == 0 ? known.data : block.state("around").data);
    block.channel->shared_done();
    copy_bytes(block.x.data, known.data, block.count() * size_of(block.dtype()));
  }

  void view_changed(Block& block) override { stage(block) = kUnknown; }
  void x_replaced(Block& block) override { stage(block) = kUnknown; }

  void check(const Schedule& schedule) const override {
    if (schedule.name().rfind("ring", 0) != 0)
      throw InvalidArgument(
          fmt::format("low-precision-ring runs on ring, not on {}; choco compresses on any "
                      "static graph",
                      schedule.name()));
  }
  std::string exact_messages_because() const override { return "its codec makes the messages"; }
  std::string no_losses_because() const override {
    return "neighbours follow each other by differences, and a lost one is never made up for; use dsgd-atc";
  }

 private:
  static constexpr double kUnknown = 0;
  static constexpr double kAsking = 1;
  static constexpr double kKnown = 2;
  static double& stage(Block& block) { return block.numbers("stage")[0]; }

  static void meet_neighbors(Block& block, MutableBlock known, MutableBlock around) {
    const auto terms = block.channel->shared(block.x);
    const std::vector<Term> others(terms.begin() + 1, terms.end());
    starling::combine(block.dtype(), around.data, others, block.count());
    double& weights = block.numbers("weights")[0];
    weights = 0;
    for (const Term& term : others) weights += term.weight;
    block.channel->shared_done();
    copy_bytes(known.data, block.x.data, block.count() * size_of(block.dtype()));
    stage(block) = kKnown;
  }

  CodecPtr codec_;
};

}  // namespace

MethodFamily low_precision_ring() {
  return {"low-precision-ring",
          "DSGD on a ring whose neighbours follow each other by differences in bytes (Bagua)",
          {{"codec", "uint8", "any codec"}},
          [](const Parameters& given) {
            return std::make_shared<LowPrecisionRing>(make_codec(given.spec("codec").to_string()));
          }};
}

}  // namespace starling::methods
