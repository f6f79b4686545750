#include "starling/method/family/list.h"

namespace starling::method::family {
namespace {

/// Local steps; after every tau-th step the models are averaged over all ranks.
class LocalSgd : public Method {
 public:
  explicit LocalSgd(Step tau) : tau_(tau) {}

  void adapt(Block& block) override {
    block.update();
    if ((block.step + 1) % tau_ == 0)
      block.collective().reduce({Block::in_place(block.x)}, Reduction::average);
  }

  MethodRequirements requirements() const override {
    return {.schedule = ScheduleKind::none, .exact_messages_because = "it would round the models themselves"};
  }

 private:
  Step tau_;
};

}  // namespace

MethodFamily allreduce_model() {
  return {"allreduce-model", "every rank steps alone, then takes the mean model", {}, [](const Parameters&) {
            return std::make_shared<LocalSgd>(1);
          }};
}

MethodFamily local_sgd() {
  return {"local-sgd",
          "local steps; every tau-th step ends in the mean of all models (FedAvg)",
          {{"tau", "8", "steps between means"}},
          [](const Parameters& given) {
            return std::make_shared<LocalSgd>(given.integer("tau", 1, 1'000'000'000));
          }};
}

}  // namespace starling::method::family
