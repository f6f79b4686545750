#include <cmath>
#include <gmock/gmock.h>

#include "method/dense.h"
#include "method/on_flock.h"
#include "starling/method/drive.h"
#include "starling/topology/registry.h"

namespace starling::method {
namespace {

using testing::ElementsAre;

/// Runs a body on a flock of threads.
void on_threads(Rank n, const FlockBody& body) {
  const auto ends = launchers()[0].run(n, [&](const std::shared_ptr<Fabric>& fabric) {
    Flock flock(fabric);
    flock.set_timeout(20s);
    body(flock);
  });
  for (std::size_t r = 0; r < ends.size(); ++r)
    EXPECT_TRUE(ends[r].ok) << "rank " << r << ": " << ends[r].message;
}

/// x, its gradient, and their driver.
struct Driven {
  std::vector<double> x, gradient;
  Driver driver;

  Driven(Flock& flock, const std::vector<double>& start, const DriverOptions& options, std::size_t parts = 1)
      : x(start),
        gradient(start.size()),
        driver(drive_in_parts(flock, buffer_of(x), buffer_of(gradient), options, parts)) {}

  void step(const Problem& problem, Rank rank) {
    driver.begin();
    problem.gradient(rank, x.data(), gradient.data());
    driver.finish();
  }
};

/// Returns a topology that the method can follow; most can use a tree.
std::string one_for(const std::string& method) {
  if (method == "noloco") return "random-matching";
  return method == "low-precision-ring" ? "ring" : "chain";
}

// Records the hooks that a method is called with, in order.
struct Recorder : Method {
  static inline thread_local std::vector<std::string> calls;
  void note(const char* what, const Block& block) {
    calls.push_back(fmt::format("{} {} {}", what, block.name, block.step));
  }
  void begin(Block& block) override { note("begin", block); }
  void gradient(Block& block) override { note("gradient", block); }
  void gradient_done(Block& block) override { note("done", block); }
  void adapt(Block& block) override {
    note("adapt", block);
    block.mix(block.x);
  }
  void combine(Block& block) override {
    note("combine", block);
    if (block.numbers("again")[0]++ < 1) block.mix(block.x);
  }
};

TEST(DriverTest, CallsTheHooksInOrderHoweverGradientsCome) {
  register_method({"test-recorder", "", {}, [](const Parameters&) { return std::make_shared<Recorder>(); }});
  on_threads(2, [](Flock& flock) {
    Recorder::calls.clear();
    Driven driven(flock, {1, 2, 3, 4}, {.method = "test-recorder", .topology = "ring"}, 2);
    driven.driver.gradient(1);  // the second block's gradient comes first and waits for its turn
    require(Recorder::calls == std::vector<std::string>{"begin part/0 0", "begin part/1 0"}, "begin");
    driven.driver.gradient(0);
    driven.driver.gradients();
    driven.driver.finish();
    const std::vector<std::string> expected = {"begin part/0 0",    "begin part/1 0",   "gradient part/0 0",
                                               "gradient part/1 0", "done part/0 0",    "done part/1 0",
                                               "adapt part/0 0",    "adapt part/1 0",   "combine part/0 0",
                                               "combine part/0 0",  "combine part/1 0", "combine part/1 0"};
    require(Recorder::calls == expected, fmt::format("{}", fmt::join(Recorder::calls, ", ")));
    require(driven.driver.step() == 1, "step");
    Recorder::calls.clear();
    driven.driver.finish_early(1);  // the first block's gradient is missing
    require(Recorder::calls == std::vector<std::string>{"begin part/0 1", "begin part/1 1"}, "early");
    driven.driver.finish_early(0);
    require(Recorder::calls.back() == "adapt part/1 1", "both at once");
    driven.driver.finish();
  });
}

TEST(DriverTest, OnceEarlyBlocksBeginTheirNextStepAsSoonAsTheyAreFinal) {
  on_threads(2, [](Flock& flock) {
    Driven driven(flock, {1, 2, 3, 4}, {.method = "dsgd-awc", .topology = "ring"}, 2);
    const auto begun = [&](std::size_t block) { return driven.driver[block].neighbors().round(); };
    driven.driver.begin();
    driven.driver.finish();
    require(begun(0) == 1 && begun(1) == 1, "a plain step");
    driven.driver.begin();
    driven.driver.finish_early(1);  // the first block's gradient is missing, so nothing is final
    require(begun(0) == 2 && begun(1) == 2, "in the middle of a step");
    driven.driver.finish();
    require(begun(0) == 3 && begun(1) == 3, "the next step");
  });
}

TEST(DriverTest, UpdatesEarlyWithTheSameBits) {
  const Problem problem{.n = 4, .count = 30};
  for (const char* method : {"dsgd-awc", "dsgd-atc", "allreduce", "gradient-tracking", "push-sum"})
    on_threads(4, [&](Flock& flock) {
      const DriverOptions options{.method = method, .topology = "ring", .optimizer = "momentum(lr=0.05)"};
      Driven plain(flock, problem.start_of<double>(flock.rank()), options, 3);
      DriverOptions other = options;
      std::vector<double> x = problem.start_of<double>(flock.rank());
      std::vector<double> gradient(x.size());
      Flock part = flock.split(0);
      Driver early = drive_in_parts(part, buffer_of(x), buffer_of(gradient), other, 3);
      for (int step = 0; step < 20; ++step) {
        plain.step(problem, flock.rank());
        early.begin();
        problem.gradient(flock.rank(), x.data(), gradient.data());
        for (const std::size_t block : {2U, 0U, 1U}) early.finish_early(block);
        early.finish();
        require(x == plain.x, fmt::format("{} step {}", method, step));
      }
    });
}

TEST(DriverTest, ContinuesFromAnyStep) {
  const Problem problem{.n = 4};
  for (const char* method : {"dsgd-awc", "dsgd-atc", "local-sgd(tau=4)", "gossip-pga(h=4)"})
    on_threads(4, [&](Flock& flock) {
      const DriverOptions options{
          .method = method, .topology = "one-peer-exponential", .optimizer = "sgd(lr=0.1)", .name = "whole"};
      Driven whole(flock, problem.start_of<double>(flock.rank()), options);
      std::vector<double> then;
      for (int step = 0; step < 13; ++step) {
        if (step == 7) then = whole.x;
        whole.step(problem, flock.rank());
      }
      Flock part = flock.split(0);
      Driven rest(part, then, options);
      rest.driver.set_step(7);
      for (int step = 7; step < 13; ++step) rest.step(problem, flock.rank());
      require(rest.x == whole.x, fmt::format("{}: {} instead of {}", method, rest.x[0], whole.x[0]));
    });
}

// dsgd-awc keeps its next message in the memory that neighbors read: a change by the program must reach it.
TEST(DriverTest, ParametersMayBeChangedBetweenSteps) {
  on_threads(2, [](Flock& flock) {
    Driven driven(flock, {1.0 * flock.rank()},
                  {.method = "dsgd-awc", .topology = "ring", .optimizer = "sgd(lr=0)"});
    driven.driver.finish();
    require(driven.x[0] == 0.5, "the mean");
    driven.x[0] = 10.0 * flock.rank();
    driven.driver.parameters_changed();
    driven.driver.finish();
    require(driven.x[0] == 5, fmt::format("{} is the mean of what was before", driven.x[0]));
    driven.x[0] = 100.0 * flock.rank();
    driven.driver.set_step(0);
    driven.driver.finish();
    require(driven.x[0] == 50, "after set_step");
  });
}

TEST(DriverTest, TheGradientIsScaledForOneStep) {
  for (const char* method : {"dsgd-awc", "dsgd-atc", "allreduce", "parameter-server", "gradient-tracking",
                             "push-sum", "relay-sgd", "allreduce-model"})
    on_threads(3, [&](Flock& flock) {
      const DriverOptions options{.method = method, .topology = "chain", .optimizer = "sgd(lr=0.1)"};
      Driven driven(flock, {2}, options);
      driven.gradient = {8};
      driven.driver[0].gradient_scale = 0.25;
      driven.driver.finish();
      require(std::abs(driven.x[0] - 1.8) < 1e-12, fmt::format("{}: {}", method, driven.x[0]));
      require(driven.driver[0].gradient_scale == 1 && !driven.driver[0].skipped, "for one step only");
    });
}

// Segments with different settings, and segments without a gradient in a step.
TEST(DriverTest, SegmentsHaveTheirOwnSettingsAndCounts) {
  on_threads(1, [](Flock& flock) {
    std::vector<double> x(6, 1);
    std::vector<double> gradient(6, 1);
    const auto hypers = std::make_shared<std::vector<Hyper>>(2);
    (*hypers)[0].lr = 0.5;
    (*hypers)[1].lr = 0.25;
    (*hypers)[1].momentum = 0.5;
    const std::vector<Segment> segments = {{0, 2, 0, true}, {2, 3, 1, true}, {5, 1, 1, true}};
    std::vector<std::unique_ptr<Block>> blocks;
    blocks.push_back(std::make_unique<Block>(
        "x", buffer_of(x), buffer_of(gradient), segments, make_sgd(buffer_of(x), 3, hypers),
        make_flock_channel(flock, "x", {make_schedule("ring", 1), "float32", ""})));
    Driver driver(make_method("dsgd-atc"), std::move(blocks));
    driver[0].segments[2].active = false;
    driver.finish();
    require(x == std::vector<double>{0.5, 0.5, 0.75, 0.75, 0.75, 1}, "first step");
    driver[0].segments[0].active = false;
    driver[0].segments[2].active = true;
    (*hypers)[0].lr = 100;
    driver.finish();
    // m = 1.5 in the second segment; the third one starts now.
    require(x == std::vector<double>{0.5, 0.5, 0.375, 0.375, 0.375, 0.75}, "second step");
  });
}

// A method gets only the channels that it declared; the error says how to declare others.
TEST(DriverTest, ChannelsThatAMethodDidNotDeclareAreRefused) {
  on_threads(2, [](Flock& flock) {
    const auto refusal = [](const auto& call) -> std::string {
      try {
        call();
      } catch (const InvalidArgument& error) {
        return error.what();
      }
      return "nothing was refused";
    };
    Driven alone(flock, {1, 2}, {.method = "local-sgd", .topology = "ring"});
    Block& without = alone.driver[0];
    require(refusal([&] { without.neighbors(); }).find("needs_schedule()") != std::string::npos, "neighbors");
    require(refusal([&] { without.one_sided(); }).find("no windows") != std::string::npos, "windows");
    require(refusal([&] { without.relay(); }).find("relay_rule()") != std::string::npos, "relay");
    require(without.channel->neighbors() == nullptr && without.channel->relay() == nullptr, "absent parts");
    Driven mixing(flock, {1, 2}, {.method = "dsgd-atc", .topology = "ring"});
    require(mixing.driver[0].neighbors().round() == 0, "a declared part");
    require(mixing.driver[0].channel->one_sided() == nullptr, "windows that it did not declare");
    Driven writing(flock, {1, 2}, {.method = "win-put", .topology = "ring"});
    require(writing.driver[0].channel->one_sided() != nullptr, "declared windows");
  });
}

TEST(DriverTest, StatesAreSavedByName) {
  on_threads(2, [](Flock& flock) {
    Driven driven(flock, {1, 2}, {.method = "gradient-tracking", .topology = "ring", .optimizer = "adam"});
    driven.driver.finish();
    std::vector<std::string> names;
    for (const NamedState& state : driven.driver[0].states()) names.push_back(state.name);
    require(std::find(names.begin(), names.end(), "y") != names.end(), "y");
    names.clear();
    for (const NamedState& state : driven.driver[0].local_update->state()) names.push_back(state.name);
    require(names == std::vector<std::string>{"steps", "m", "v"}, "Adam's");
  });
}

TEST(DriverTest, AFlockOfOneSendsNothing) {
  on_threads(1, [](Flock& flock) {
    for (const MethodFamily& family : method_families()) {
      if (family.name.rfind("test-", 0) == 0) continue;
      Driven driven(flock, {4},
                    {.method = family.name, .topology = one_for(family.name), .optimizer = "adam(lr=0.1)"});
      driven.gradient = {3};
      driven.driver.finish();
      require(std::abs(driven.x[0] - 3.9) < 1e-6, family.name);
      require(driven.driver.waited() < 1, "waited although it is alone");
    }
  });
}

TEST(DriverTest, WorksWithoutBlocks) {
  Driver driver(make_method("dsgd-awc"), {});
  driver.begin();
  driver.gradients();
  driver.finish();
  EXPECT_EQ(driver.step(), 1);
}

TEST(DriverTest, EmptyBlocksTakePart) {
  for (const MethodFamily& family : method_families()) {
    if (family.name.rfind("test-", 0) == 0) continue;
    on_threads(3, [&](Flock& flock) {
      Driven driven(flock, {},
                    {.method = family.name, .topology = one_for(family.name), .optimizer = "adam"});
      for (int step = 0; step < 5; ++step) driven.driver.finish();
      driven.driver.settle();  // no rank leaves while others still wait for an average
    });
  }
}

}  // namespace
}  // namespace starling::method
