#include "starling/codec/registry.h"
#include "starling/kernel/copy.h"
#include "starling/method/family/compressed_average.h"
#include "starling/method/family/list.h"
#include "starling/method/family/validity.h"

namespace starling::methods {
namespace {

/// CHOCO-SGD: y = x + U; everybody knows x^_j, which follow by compressed differences, x^ += C(y - x^); x <-
/// y + gamma sum of w_j (x^_j - x^). That sum is kept as one vector, which the messages change.
class Choco : public Method {
 public:
  Choco(CodecPtr codec, double gamma, std::uint64_t seed)
      : codec_(std::move(codec)), gamma_(gamma), seed_(seed) {}

  void adapt(Block& block) override {
    block.update();
    const MutableBlock known = block.state("known");
    const MutableBlock difference = block.state("difference");
    const Term way[] = {{block.x.data, 1}, {known.data, -1}};
    starling::combine(block.dtype(), difference.data, way, block.count());
    const EncodedBlock encoded(*codec_, block);
    const MutableBlock message = block.make_state("message", DType::uint8, encoded.bytes());
    auto* bytes = static_cast<std::byte*>(message.data);
    encoded.encode(block, difference.data, nullptr, seed_, bytes);
    encoded.decode_add(block, bytes, 1, known.data);
    block.channel->share(message);
  }

  void combine(Block& block) override {
    const EncodedBlock encoded(*codec_, block);
    const MutableBlock pull = block.state("pull");
    const auto terms = block.channel->shared(block.make_state("message", DType::uint8, encoded.bytes()));
    for (std::size_t i = 0; i < terms.size(); ++i)
      encoded.decode_add(block, static_cast<const std::byte*>(terms[i].data),
                         i == 0 ? terms[i].weight - 1 : terms[i].weight, pull.data);
    block.channel->shared_done();
    const Term next[] = {{block.x.data, 1}, {pull.data, gamma_}};
    starling::combine(block.dtype(), block.x.data, next, block.count());
  }

  // What the others know of this rank, and it of them, has begun anew everywhere.
  void view_changed(Block& block) override {
    forget(block.state("known"));
    forget(block.state("pull"));
  }
  std::string works_on() const override { return "ring, torus or exponential"; }
  void check(const Schedule& schedule) const override {
    Method::check(schedule);
    require_fixed_neighbors(schedule, "choco");
  }
  std::string exact_messages_because() const override { return "its codec makes the messages"; }
  std::string no_losses_because() const override {
    return "neighbours follow each other by differences, and a lost one is never made up for; use dsgd-atc";
  }

 private:
  CodecPtr codec_;
  double gamma_;
  std::uint64_t seed_;
};

}  // namespace

MethodFamily choco() {
  return {"choco",
          "DSGD whose neighbours follow each other by compressed differences (CHOCO-SGD)",
          {{"codec", "top-k(fraction=0.01)", "any codec"},
           {"gamma", "0.1", "how far to go towards the neighbours: the shorter the messages, the less"},
           {"seed", "0", "of stochastic codecs"}},
          [](const Parameters& given) {
            return std::make_shared<Choco>(make_codec(given.spec("codec").to_string()),
                                           given.number("gamma", 1e-9, 1), given.seed());
          }};
}

}  // namespace starling::methods
