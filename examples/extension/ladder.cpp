// An extension: a shared library whose topology, method, codec and objective `starling` can use by name.
//
//   starling simulate train --load libladder.so -m rested -t ladder --problem bowls -n 16
#include <cmath>
#include <cstring>
#include <starling/extension.h>

using namespace starling;

namespace {

// Two rails with rungs: 0-1, 2-3, 4-5, ... One weight for all edges is symmetric.
class Ladder : public Schedule {
 public:
  Ladder(Rank n, double weight) : Schedule(n), weight_(weight) {}

 private:
  void fill(Step, Rank rank, Exchange& out) const override {
    for (const Rank other : {rank - 2, rank + 2, rank ^ 1}) {
      if (other < 0 || other >= size()) continue;
      out.add_pair(other, weight_);
      out.self_weight -= weight_;
    }
  }
  double weight_;
};

// DSGD that averages only in every `every`-th step.
class Rested : public Method {
 public:
  explicit Rested(Step every) : every_(every) {}
  void adapt(Block& block) override {
    block.update();
    if ((block.step + 1) % every_ == 0) block.mix(block.x);
  }

 private:
  MethodRequirements requirements() const override { return {.schedule = ScheduleKind::static_symmetric}; }
  Step every_;
};

// Halves the bits of every element: float32 without its last 16 bits.
class Cut final : public HostCodec {
 public:
  std::size_t encoded_bytes(DType, CodecShape shape) const override { return whole_message(2 * shape.count); }

 private:
  void host_encode(ConstBuffer in, std::size_t, const CodecKey&,
                   std::span<std::byte> message) const override {
    std::memset(message.data(), 0, message.size());
    with_elements(in, [&](const auto* elements) {
      for (std::size_t i = 0; i < in.count; ++i) {
        const auto x = static_cast<float>(elements[i]);
        std::uint32_t bits = 0;
        std::memcpy(&bits, &x, sizeof(bits));
        const auto upper = static_cast<std::uint16_t>(bits >> 16);
        std::memcpy(message.data() + 2 * i, &upper, sizeof(upper));
      }
    });
  }
  void host_decode(std::span<const std::byte> message, std::size_t, Buffer out) const override {
    with_elements(out, [&](auto* elements) {
      for (std::size_t i = 0; i < out.count; ++i) {
        std::uint16_t upper = 0;
        std::memcpy(&upper, message.data() + 2 * i, sizeof(upper));
        const std::uint32_t bits = static_cast<std::uint32_t>(upper) << 16;
        float x = 0;
        std::memcpy(&x, &bits, sizeof(x));
        elements[i] = x;
      }
    });
  }
};

// Node r's minimum has every element r, so the common minimum is the mean of the ranks.
class Bowls : public Objective {
 public:
  using Objective::gradient;
  using Objective::Objective;
  void gradient(Rank node, Step, std::span<const double> x, std::span<double> out) const override {
    for (std::size_t k = 0; k < x.size(); ++k) out[k] = x[k] - node;
  }
  double value(std::span<const double> x) const override {
    double sum = 0;
    for (Rank node = 0; node < nodes(); ++node)
      for (const double element : x) sum += std::pow(element - node, 2) / 2;
    return sum / nodes();
  }
};

}  // namespace

STARLING_EXTENSION() {
  register_topology({.name = "ladder",
                     .summary = "two rails with rungs",
                     .parameters = {{"weight", "0.25", "of every neighbor"}},
                     .make = [](const Parameters& given, const TopologySetting& setting) {
                       return std::make_shared<Ladder>(setting.n, given.number("weight", 0, 0.33));
                     }});
  register_method({"rested",
                   "dsgd that averages in every few steps",
                   {{"every", "2", "steps per average"}},
                   [](const Parameters& given) {
                     return std::make_shared<Rested>(given.integer("every", 1, 1'000'000));
                   }});
  register_codec({"cut", "float32 without its last 16 bits", {}, [](const Parameters&) {
                    return std::make_shared<Cut>();
                  }});
  register_objective({"bowls",
                      "a bowl per node, around its rank",
                      {},
                      [](const Parameters&, const ObjectiveSetting& setting) {
                        return std::make_shared<Bowls>(setting.nodes, setting.dim);
                      }});
}
