#include <fmt/format.h>

#include "starling/codec/registry.h"
#include "starling/method/family/compressed_average.h"
#include "starling/method/family/list.h"
#include "starling/method/family/vote.h"

namespace starling::method::family {
namespace {

using Way = CompressedAverage::Way;

/// allreduce whose gradients travel compressed.
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

MethodPtr make(CodecPtr codec, Way way, bool feedback, std::uint64_t seed) {
  return std::make_shared<CompressedAllreduce>(
      CompressedAverage::Options{std::move(codec), way, feedback, seed});
}

const Parameter kSeed{"seed", "0", "of stochastic codecs"};

}  // namespace

MethodFamily compressed_allreduce() {
  return {"compressed-allreduce",
          "allreduce whose gradients travel to everybody as messages of any codec",
          {{"codec", "top-k(fraction=0.01)", "any codec", ParameterKind::codec},
           {"feedback", "true", "what an encoding leaves out goes into the next one"},
           kSeed},
          [](const Parameters& given) {
            return make(make_codec(given.spec("codec").to_string()), Way::gathered, given.yes("feedback"),
                        given.seed());
          }};
}

MethodFamily bytegrad() {
  return {"bytegrad",
          "allreduce in bytes: gradients are quantised, dealt out, averaged, quantised again and gathered",
          {},
          [](const Parameters&) { return make(make_codec("uint8"), Way::dealt, false, 0); }};
}

MethodFamily qsgd() {
  return {"qsgd",
          "allreduce of stochastically quantised gradients, unbiased",
          {{"levels", "127", "of |x| / ||x||: the more, the longer and the more exact"},
           {"feedback", "false", "what an encoding leaves out goes into the next one"},
           kSeed},
          [](const Parameters& given) {
            return make(make_codec(fmt::format("qsgd(levels={})", given.integer("levels", 1, 1'000'000))),
                        Way::gathered, given.yes("feedback"), given.seed());
          }};
}

MethodFamily sign_sgd() {
  return {"sign-sgd",
          "everybody steps by the sign that most gradients have, element by element: a bit there and back",
          {},
          [](const Parameters&) { return make(make_vote(), Way::dealt, false, 0); }};
}

}  // namespace starling::method::family
