#include "starling/topology/registry.h"

#include <algorithm>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "starling/base/error.h"
#include "topology/random_checks.h"
#include "topology/schedule_checks.h"

namespace starling::topology {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

std::string registry_error(const std::string& text, Rank n) {
  try {
    make_schedule(text, n);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "accepted";
}

std::string name_of(const std::string& text, Rank n, std::uint64_t seed = 0) {
  return make_schedule(text, n, seed)->name();
}

// The names and parameters in the last section of the specification.
struct Declared {
  std::string name;
  std::vector<std::string> parameters;
  bool changing = false;
  bool random = false;
};

const std::vector<Declared>& specified() {
  static const std::vector<Declared> all = {{"ring", {"weights"}},
                                            {"one-way-ring", {}},
                                            {"chain", {"weights"}},
                                            {"star", {"center", "weights"}},
                                            {"grid", {"rows", "weights"}},
                                            {"torus", {"rows", "weights"}},
                                            {"hypercube", {}},
                                            {"complete", {}},
                                            {"erdos-renyi", {"p", "weights", "seed"}, false, true},
                                            {"exponential", {"base"}},
                                            {"symmetric-exponential", {"base"}},
                                            {"binary-tree", {"mirror", "weights"}},
                                            {"double-binary-trees", {}},
                                            {"k-tree", {"k", "weights"}},
                                            {"bfs-tree", {"of", "root"}},
                                            {"d-equistatic", {"m", "seed"}, false, true},
                                            {"u-equistatic", {"m", "seed"}, false, true},
                                            {"custom", {"file", "weights"}},
                                            {"one-peer-exponential", {"order", "seed"}, true, true},
                                            {"k-peer-exponential", {"k"}, true},
                                            {"one-peer-hypercube", {}, true},
                                            {"one-peer-ring", {}, true},
                                            {"aer", {"local"}, true},
                                            {"inner-outer-exponential", {"local"}, true},
                                            {"inner-outer-ring", {"local"}, true},
                                            {"one-peer-of", {"graph"}, true},
                                            {"hyper-hypercube", {"k"}, true},
                                            {"simple-base", {"k"}, true},
                                            {"base", {"k"}, true},
                                            {"ceca", {"k"}, true},
                                            {"ceca-1p", {}, true},
                                            {"fold-unfold", {}, true},
                                            {"od-equidyn", {"eta", "m", "seed"}, true, true},
                                            {"ou-equidyn", {"eta", "m", "seed"}, true, true},
                                            {"random-matching", {"seed"}, true, true},
                                            {"el-oracle", {"k", "seed"}, true, true},
                                            {"matcha", {"graph", "budget", "seed"}, true, true},
                                            {"hierarchical", {"outer", "local"}, true},
                                            {"periodic", {"schedule", "h"}, true},
                                            {"live", {"schedule", "members"}, true}};
  return all;
}

TEST(RegistryTest, AerTakesTheRanksPerMachineUnlessGiven) {
  const auto name = [](const std::string& spec, TopologySetting setting) {
    return make_schedule(parse_spec(spec), setting)->name();
  };
  EXPECT_EQ(name("aer", {8, 0, 4}), "aer(local=4)");
  EXPECT_EQ(name("aer(local=2)", {8, 0, 4}), "aer(local=2)");
  EXPECT_EQ(name("aer", {9, 0, 4}), "aer");  // hosts have different numbers of ranks
  EXPECT_EQ(name("periodic(aer, h=3)", {8, 0, 4}), "periodic(aer(local=4),h=3)");
  EXPECT_EQ(name("hierarchical(outer=aer, local=4)", {8, 0, 4}), "hierarchical(outer=aer,local=4)");
  // Every rank takes part in the mean of its machine, or of two machines.
  const SchedulePtr schedule = make_schedule(parse_spec("aer"), {8, 0, 4});
  for (Step step = 0; step < schedule->period(); ++step)
    for (Rank rank = 0; rank < 8; ++rank) EXPECT_EQ(schedule->exchange(step, rank).group.size(), 4);
}

TEST(RegistryTest, HasEveryNameOfTheSpecificationInOrder) {
  const auto families = topology_families();
  ASSERT_GE(families.size(), specified().size());
  for (std::size_t i = 0; i < specified().size(); ++i) {
    const Declared& expected = specified()[i];
    EXPECT_EQ(families[i].name, expected.name);
    EXPECT_FALSE(families[i].summary.empty()) << expected.name;
    EXPECT_EQ(families[i].random, expected.random) << expected.name;
    // Two trees that alternate, listed with the static topologies
    if (expected.name != "double-binary-trees") {
      EXPECT_EQ(families[i].changing, expected.changing) << expected.name;
    }
    std::set<std::string> names;
    for (const Parameter& parameter : families[i].parameters) {
      names.insert(parameter.name);
      EXPECT_FALSE(parameter.help.empty()) << expected.name << " " << parameter.name;
    }
    for (const std::string& parameter : expected.parameters)
      EXPECT_TRUE(names.contains(parameter)) << expected.name << " lacks " << parameter;
  }
}

// Defaults follow the same grammar, so that users can type what the list shows.
TEST(RegistryTest, ShownDefaultsCanBeTyped) {
  for (const Declared& declared : specified())
    for (const Family& family : topology_families()) {
      if (family.name != declared.name) continue;
      std::string arguments;
      bool all = true;
      for (const Parameter& parameter : family.parameters) {
        all = all && !parameter.fallback.empty();
        arguments += (arguments.empty() ? "" : ",") + parameter.name + "=" + parameter.fallback;
      }
      if (!all || family.parameters.empty()) continue;
      const SchedulePtr plain = make_schedule(family.name, 16);
      const SchedulePtr spelled = make_schedule(family.name + "(" + arguments + ")", 16);
      for (Step step = 0; step < 3; ++step)
        EXPECT_EQ(dense_round(*plain, step), dense_round(*spelled, step)) << spelled->name();
    }
}

TEST(RegistryTest, UnknownNamesAndParametersListTheValidOnes) {
  EXPECT_THAT(
      registry_error("rng", 4),
      StartsWith("unknown topology 'rng' (did you mean ring?); valid are ring, one-way-ring, chain, "));
  EXPECT_THAT(registry_error("rng", 4), HasSubstr(", matcha, hierarchical, periodic, live"));
  EXPECT_THAT(registry_error("Ring", 4), StartsWith("unknown topology 'Ring'"));
  EXPECT_THAT(registry_error("periodic(rng,h=2)", 4), StartsWith("unknown topology 'rng'"));
  EXPECT_EQ(registry_error("base(size=2)", 4), "base has no parameter 'size'; valid are k=1");
  EXPECT_EQ(registry_error("base(kk=2)", 4), "base has no parameter 'kk' (did you mean k?); valid are k=1");
  EXPECT_EQ(registry_error("complete(k=2)", 4), "complete has no parameter 'k'; it takes none");
  EXPECT_EQ(registry_error("random-matching(k=2)", 4),
            "random-matching has no parameter 'k'; valid are seed=0");
  EXPECT_EQ(registry_error("live(ring)", 4),
            "live needs members= (ranks, such as [0,2,5..9]); valid are schedule=, members=");
  EXPECT_EQ(registry_error("[ring]", 4), "expected a topology's name, not the list [ring]");
  EXPECT_EQ(registry_error("periodic([ring],h=2)", 4), "expected a topology's name, not the list [ring]");
  EXPECT_EQ(registry_error("ring", 0), "a topology needs at least one rank, not n = 0");
  EXPECT_EQ(registry_error("ring", -3), "a topology needs at least one rank, not n = -3");
}

TEST(RegistryTest, SeedsEnterTheName) {
  EXPECT_EQ(name_of("ring", 8, 7), "ring");
  EXPECT_EQ(name_of("random-matching", 8), "random-matching(seed=0)");
  EXPECT_EQ(name_of("random-matching", 8, 7), "random-matching(seed=7)");
  EXPECT_EQ(name_of("random-matching(seed=3)", 8, 7), "random-matching(seed=3)");
  EXPECT_EQ(name_of("random-matching(3)", 8, 7), "random-matching(3)");  // by position
  EXPECT_EQ(name_of("od-equidyn( eta = 0.5 )", 8, 7), "od-equidyn(eta=0.5,seed=7)");
  EXPECT_EQ(name_of("periodic(od-equidyn,h=4)", 8, 7), "periodic(od-equidyn(seed=7),h=4)");
  EXPECT_EQ(name_of("hierarchical(local=2,outer=periodic(random-matching,h=3))", 8, 7),
            "hierarchical(local=2,outer=periodic(random-matching(seed=7),h=3))");
  EXPECT_EQ(name_of("matcha(erdos-renyi,budget=0.5)", 8, 7), "matcha(erdos-renyi(seed=7),budget=0.5,seed=7)");
  EXPECT_EQ(name_of("one-peer-of(erdos-renyi(seed=1))", 8, 7), "one-peer-of(erdos-renyi(seed=1))");
}

// Ranks agree on a schedule by its name: the name alone must recreate it, whatever the seed of the run.
TEST(RegistryTest, EqualNamesGiveEqualExchanges) {
  for (const std::string text :
       {"ring", "erdos-renyi(p=0.4)", "d-equistatic", "u-equistatic(m=3)",
        "one-peer-exponential(order=permuted)", "one-peer-exponential(order=random)", "od-equidyn",
        "ou-equidyn", "random-matching", "el-oracle(k=2)", "matcha(graph=erdos-renyi)",
        "periodic(random-matching,h=3)", "live(od-equidyn,members=[0,2,4..8])",
        "hierarchical(outer=random-matching,local=2)"}) {
    const SchedulePtr schedule = make_schedule(text, 12, 99);
    const SchedulePtr again = make_schedule(schedule->name(), 12, 1);
    EXPECT_EQ(again->name(), schedule->name());
    bool differs = false;
    const SchedulePtr other = make_schedule(text, 12, 100);
    for (Step step = 0; step < 8; ++step) {
      EXPECT_EQ(dense_round(*again, step), dense_round(*schedule, step)) << text;
      differs = differs || dense_round(*other, step) != dense_round(*schedule, step);
    }
    EXPECT_EQ(differs, schedule->name() != text) << text;  // seeds matter only in names that contain them
  }
}

TEST(RegistryTest, RanksAndStepsOutOfRange) {
  const SchedulePtr schedule = make_schedule("base(k=2)", 6);
  const auto message = [&](Step step, Rank rank) -> std::string {
    try {
      schedule->exchange(step, rank);
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_EQ(message(0, 6), "base(k=2): rank 6 is not one of the 6 ranks 0..5");
  EXPECT_EQ(message(0, -1), "base(k=2): rank -1 is not one of the 6 ranks 0..5");
  EXPECT_EQ(message(-1, 0), "base(k=2): step -1 is negative; steps start at 0");
}

/// A user-defined topology: all ranks receive from rank 0.
class Broadcast final : public Schedule {
 public:
  Broadcast(Rank n, double weight) : Schedule(n), weight_(weight) {}

 private:
  void fill(Step /*step*/, Rank rank, Exchange& out) const override {
    if (rank == 0) {
      for (Rank other = 1; other < size(); ++other) out.add_destination(other);
    } else {
      out.self_weight = 1 - weight_;
      out.add_source(0, weight_);
    }
  }
  double weight_;
};

TEST(RegistryTest, TakesFamiliesOfTheProgram) {
  Family family{
      .name = "test-broadcast",
      .summary = "all ranks receive from rank 0",
      .parameters = {{"weight", "0.5", "of what is heard"}},
      .make = [](const Parameters& parameters, const TopologySetting& setting) -> std::shared_ptr<Schedule> {
        return std::make_shared<Broadcast>(setting.n, parameters.number("weight", 0, 1));
      },
      .random = true};
  register_topology(family);
  const auto families = topology_families();
  const auto found =
      std::find_if(families.begin() + static_cast<std::ptrdiff_t>(specified().size()), families.end(),
                   [](const Family& other) { return other.name == "test-broadcast"; });
  ASSERT_NE(found, families.end());
  EXPECT_EQ(found->parameters.back().name, "seed");
  const SchedulePtr schedule = make_schedule("test-broadcast(0.25)", 4, 6);
  EXPECT_EQ(schedule->name(), "test-broadcast(0.25,seed=6)");
  EXPECT_EQ(dense_round(*schedule, 0)(3, 0), 0.25);
  EXPECT_EQ(dense_round(*make_schedule("hierarchical(outer=test-broadcast,local=2)", 4), 0)(2, 0), 0.25);
  EXPECT_THAT(registry_error("rng", 4), HasSubstr(", test-broadcast"));
  EXPECT_EQ(registry_error("test-broadcast(weight=2)", 4),
            "test-broadcast: weight=2 is not valid; expected a number from 0 to 1");
  try {
    register_topology(family);
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(), "a topology named 'test-broadcast' exists already");
  }
  family.name = "ring";
  EXPECT_THROW(register_topology(family), InvalidArgument);
}

/// The error when a family with this exchange function is made.
std::string own_family_error(const std::string& name, Mixing mixing,
                             std::function<void(Step, Rank, Exchange&)> fill) {
  class Own final : public Schedule {
   public:
    Own(Rank n, Mixing mixing, std::function<void(Step, Rank, Exchange&)> fill)
        : Schedule(n), mixing_(mixing), fill_(std::move(fill)) {}
    Step period() const override { return 2; }
    Mixing mixing() const override { return mixing_; }

   private:
    void fill(Step step, Rank rank, Exchange& out) const override { fill_(step, rank, out); }
    Mixing mixing_;
    std::function<void(Step, Rank, Exchange&)> fill_;
  };
  register_topology(
      {.name = name,
       .summary = "",
       .parameters = {},
       .make = [=](const Parameters&, const TopologySetting& setting) -> std::shared_ptr<Schedule> {
         return std::make_shared<Own>(setting.n, mixing, fill);
       }});
  return registry_error(name, 3);
}

TEST(RegistryTest, RefusesFamiliesWhoseRanksDoNotFitTogether) {
  const auto ring = [](double self, double weight, bool answered) {
    return [=](Step step, Rank rank, Exchange& out) {
      out.self_weight = step == 0 ? 0.5 : self;
      out.add_source((rank + 1) % 3, step == 0 ? 0.5 : weight);
      if (step == 0 || answered || rank != 1) out.add_destination((rank + 2) % 3);
    };
  };
  EXPECT_EQ(
      own_family_error("test-heavy", Mixing::average, ring(0.6, 0.6, true)),
      "test-heavy: in step 1 the weights of rank 0 sum to 1.2, not to 1; the self weight and the sources' "
      "weights must sum to one");
  EXPECT_EQ(own_family_error("test-unanswered", Mixing::average, ring(0.5, 0.5, false)),
            "test-unanswered: in step 1 rank 0 receives from rank 1, which does not send to it; add the "
            "destination 0 to rank 1 or remove the source");
  EXPECT_EQ(
      own_family_error("test-unheard", Mixing::average,
                       [](Step, Rank rank, Exchange& out) {
                         if (rank == 2) out.add_destination(0);
                       }),
      "test-unheard: in step 0 rank 2 sends to rank 0, which does not receive from it; add the source 2 to "
      "rank 0 or remove the destination");
  EXPECT_EQ(own_family_error("test-outside", Mixing::average,
                             [](Step, Rank rank, Exchange& out) { out.add_pair(rank + 1, 0.1); }),
            "test-outside: rank 2 exchanges with rank 3 in step 0; its neighbors are other ranks of 0..2");
  const auto to_first = [](double kept) {
    return [=](Step, Rank rank, Exchange& out) {
      out.self_weight = rank == 0 ? 1 : kept;
      if (rank != 0) {
        out.add_destination(0);
        return;
      }
      out.add_source(1, 0.5);
      out.add_source(2, 0.5);
    };
  };
  EXPECT_EQ(
      own_family_error("test-gives-too-much", Mixing::push_sum, to_first(1)),
      "test-gives-too-much: in step 0 rank 1 gives away 1.5 of its value in all, not 1; the weights that its "
      "destinations and itself give to it must sum to one");
  EXPECT_EQ(own_family_error("test-sums", Mixing::push_sum, to_first(0.5)), "accepted");
}

TEST(RegistryTest, ManyThreadsAtOnce) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([i] {
      for (int k = 0; k < 50; ++k) {
        register_topology(
            {.name = "test-thread-" + std::to_string(i) + "-" + std::to_string(k),
             .summary = "",
             .parameters = {},
             .make = [](const Parameters&, const TopologySetting& setting) -> std::shared_ptr<Schedule> {
               return std::make_shared<Broadcast>(setting.n, 0.5);
             }});
        EXPECT_EQ(make_schedule("random-matching", 6)->size(), 6);
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(make_schedule("test-thread-3-49", 5)->size(), 5);
}

}  // namespace
}  // namespace starling::topology
