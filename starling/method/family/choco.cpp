#include "starling/codec/registry.h"
#include "starling/method/family/compressed_average.h"
#include "starling/method/family/list.h"
#include "starling/method/family/validity.h"

namespace starling::method::family {
namespace {

/// CHOCO-SGD: y = x + U; every rank keeps copies x^_j, updated by compressed differences, x^ += C(y - x^); x
/// <- y + gamma sum of w_j (x^_j - x^). The sum is kept as one vector, which the messages update.
class Choco : public Method {
 public:
  Choco(CodecPtr codec, double gamma, std::uint64_t seed)
      : codec_(std::move(codec)), gamma_(gamma), seed_(seed) {}

  void adapt(Block& block) override {
    block.update();
    const Buffer known = block.state("known");
    const Buffer difference = block.state("difference");
    block.combine(difference, {{block.x, 1}, {known, -1}});
    const EncodedBlock encoded(*codec_, block);
    const Buffer message = block.make_state("message", DType::uint8, encoded.bytes());
    encoded.encode(block, difference, {}, seed_, message);
    encoded.decode_add(block, message, 1, known);
    block.share(message);
  }

  void combine(Block& block) override {
    const EncodedBlock encoded(*codec_, block);
    const Buffer pull = block.state("pull");
    const SharedExchange shared = block.take_shared();
    const Buffer message = block.make_state("message", DType::uint8, encoded.bytes());
    const auto terms = shared.arrived_terms(message);
    for (std::size_t i = 0; i < terms.size(); ++i)
      encoded.decode_add(block, message.at(terms[i].data), i == 0 ? terms[i].weight - 1 : terms[i].weight,
                         pull);
    block.combine(block.x, {{block.x, 1}, {pull, gamma_}});
  }

  // The copies are reset on all ranks.
  void view_changed(Block& block) override {
    block.zero(block.state("known"));
    block.zero(block.state("pull"));
  }
  MethodRequirements requirements() const override {
    return {.schedule = ScheduleKind::static_neighbors,
            .column_sums = true,
            .exact_messages_because = "its codec makes the messages",
            .no_losses_because =
                "neighbors follow each other by differences, and a lost one is never made up "
                "for; use dsgd-atc"};
  }

 private:
  CodecPtr codec_;
  double gamma_;
  std::uint64_t seed_;
};

}  // namespace

MethodFamily choco() {
  return {"choco",
          "DSGD whose neighbors follow each other by compressed differences (CHOCO-SGD)",
          {{"codec", "top-k(fraction=0.01)", "any codec", ParameterKind::codec},
           {"gamma", "0.1", "step toward the neighbors' average; smaller for shorter messages"},
           {"seed", "0", "seed for stochastic codecs"}},
          [](const Parameters& given) {
            return std::make_shared<Choco>(make_codec(given.spec("codec").to_string()),
                                           given.number("gamma", 1e-9, 1), given.seed());
          }};
}

}  // namespace starling::method::family
