#include <fmt/format.h>

#include "starling/codec/registry.h"
#include "starling/method/family/compressed_average.h"
#include "starling/method/family/list.h"

namespace starling::method::family {
namespace {

using Algorithm = CompressedAverage::Algorithm;

/// allreduce with compressed gradients.
class CompressedAllreduce : public Method {
 public:
  explicit CompressedAllreduce(CompressedAverage::Options options) : average_(std::move(options)) {}

  void gradient(Block& block) override { average_.start(block, block.gradient, !block.skipped); }

  void gradient_done(Block& block) override {
    if (!average_.proceed(block, block.gradient)) return;
    block.skipped = average_.contributors(block) == 0;
    block.activate();
  }

  void adapt(Block& block) override { block.update(); }

  MethodRequirements requirements() const override {
    return {.schedule = ScheduleKind::none,
            .exact_messages_because = "its codec makes the messages",
            .gradient = GradientUse::averaged};
  }

 private:
  CompressedAverage average_;
};

MethodPtr make(CodecPtr codec, Algorithm algorithm, bool feedback, std::uint64_t seed) {
  return std::make_shared<CompressedAllreduce>(
      CompressedAverage::Options{std::move(codec), algorithm, feedback, seed});
}

const Parameter kSeed{"seed", "0", "seed for stochastic codecs"};

}  // namespace

MethodFamily compressed_allreduce() {
  return {"compressed-allreduce",
          "allreduce of gradients that are encoded with any codec and gathered on all ranks",
          {{"codec", "top-k(fraction=0.01)", "any codec", ParameterKind::codec},
           {"feedback", "true", "add the encoding error to the next message"},
           kSeed},
          [](const Parameters& given) {
            return make(make_codec(given.spec("codec").to_string()), Algorithm::all_gather,
                        given.yes("feedback"), given.seed());
          }};
}

MethodFamily bytegrad() {
  return {"bytegrad",
          "allreduce in bytes: gradients are quantized, scattered, averaged, quantized again and gathered",
          {},
          [](const Parameters&) { return make(make_codec("uint8"), Algorithm::scatter_gather, false, 0); }};
}

MethodFamily qsgd() {
  return {"qsgd",
          "allreduce of stochastically quantized gradients, unbiased",
          {{"levels", "127", "levels of |x| / ||x||: more are longer and more exact"},
           {"feedback", "false", "add the encoding error to the next message"},
           kSeed},
          [](const Parameters& given) {
            return make(make_codec(fmt::format("qsgd(levels={})", given.integer("levels", 1, 1'000'000))),
                        Algorithm::all_gather, given.yes("feedback"), given.seed());
          }};
}

MethodFamily sign_sgd() {
  return {"sign-sgd",
          "majority vote: each element steps by the sign that most gradients have; one bit per element",
          {},
          [](const Parameters&) { return make(make_codec("vote"), Algorithm::scatter_gather, false, 0); }};
}

}  // namespace starling::method::family
