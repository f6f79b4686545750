#include "starling/method/family/list.h"

namespace starling::method::family {
namespace {

/// Model averaging on a timer: c = a copy of x; S = the mean of all ranks' c, which arrives when the slowest
/// rank has sent its own. Training continues meanwhile, and then x <- x + S - c.
class AsyncAverage : public Method {
 public:
  AsyncAverage(double interval, std::optional<Step> staleness) : interval_(interval), staleness_(staleness) {}

  void begin(Block& block) override {
    if (under_way(block) && block.collective().average_arrived(block.state("mean"))) apply(block, block.step);
    if (!under_way(block) && due(block)) start(block);
  }

  void adapt(Block& block) override {
    block.update();
    if (staleness_ && under_way(block) && block.step + 1 - started(block) >= *staleness_)
      block.collective().await_average();
  }

  // A rank that has not started the average that others have started does so now.
  void settle(Block& block) override {
    const Buffer newest = block.scalar("newest");
    write_number(newest, number(block));
    block.collective().reduce({Block::in_place(newest)}, Reduction::max);
    block.channel->wait();
    if (read_number(newest) > number(block)) start(block);
    if (!under_way(block)) return;
    block.collective().await_average();
    block.channel->wait();
    if (block.collective().average_arrived(block.state("mean"))) apply(block, block.step + 1);
  }

  MethodRequirements requirements() const override {
    return {.schedule = ScheduleKind::none,
            .exact_messages_because = "it would round the models themselves",
            .asynchronous = true};
  }

 private:
  // Four numbers: whether an average is in flight, the step in which it started, the number of averages so
  // far, and the time when the last one started.
  static std::span<double> notes(Block& block) { return block.numbers("average", 4); }
  static bool under_way(Block& block) { return notes(block)[0] != 0; }
  static Step started(Block& block) { return static_cast<Step>(notes(block)[1]); }
  static double number(Block& block) { return notes(block)[2]; }

  // If ranks may wait for averages, these start in the same steps everywhere; otherwise a rank might have
  // ended before.
  bool due(Block& block) const {
    if (staleness_) return block.step % *staleness_ == 0;
    return number(block) == 0 || block.channel->now() - notes(block)[3] >= interval_;
  }

  static void start(Block& block) {
    block.copy(block.state("copy"), block.x);
    const auto all = notes(block);
    all[0] = 1;
    all[1] = static_cast<double>(block.step);
    all[2] += 1;
    all[3] = block.channel->now();
    block.collective().start_average(block.x);
  }

  static void apply(Block& block, Step step) {
    block.combine(block.x, {{block.x, 1}, {block.state("mean"), 1}, {block.state("copy"), -1}});
    notes(block)[0] = 0;
    block.channel->note_age(step - started(block));
  }

  double interval_;  // seconds
  std::optional<Step> staleness_;
};

}  // namespace

MethodFamily async_average() {
  return {"async-average",
          "local steps; models are averaged in the background, at an interval in seconds",
          {{"interval", "0", "seconds between the starts of two averages; 0: an average is always in flight"},
           {"staleness", "auto", "average every N steps instead, applied N steps later; auto: by interval"}},
          [](const Parameters& given) {
            return std::make_shared<AsyncAverage>(given.number("interval", 0, 1e9),
                                                  given.optional_integer("staleness", 1, 1'000'000'000));
          }};
}

}  // namespace starling::method::family
