// Every registered spec has one canonical form, whatever its spelling.
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>

#include "method/on_flock.h"
#include "starling/codec/registry.h"
#include "starling/data/registry.h"
#include "starling/method/registry.h"
#include "starling/simulate/objective_registry.h"
#include "starling/topology/registry.h"

namespace starling::method {
namespace {

using Canonical = std::function<std::string(const std::string&)>;

// Arguments for parameters that have no default.
const std::map<std::string, std::string>& needed() {
  static const std::map<std::string, std::string> values = {{"schedule", "ring"},   {"outer", "ring"},
                                                            {"graph", "ring"},      {"of", "ring"},
                                                            {"members", "[0,1,2]"}, {"h", "16"}};
  return values;
}

template <typename Family>
void expect_one_form(const std::vector<Family>& families, const Canonical& canonical) {
  for (const Family& family : families) {
    std::string shortest, by_position, by_name, reversed;
    bool possible = true;
    for (const Parameter& parameter : family.parameters) {
      const bool optional = !parameter.fallback.empty();
      possible = possible && (optional || needed().contains(parameter.name));
      if (!possible) break;
      const std::string value = optional ? parameter.fallback : needed().at(parameter.name);
      const std::string named = parameter.name + "=" + value;
      if (!optional) shortest += (shortest.empty() ? "" : ",") + named;
      by_position += (by_position.empty() ? "" : ", ") + value;
      by_name += (by_name.empty() ? "" : ",") + named;
      reversed = named + (reversed.empty() ? "" : " , ") + reversed;
    }
    if (!possible) continue;  // reads a file
    const std::string form = canonical(family.name + "(" + shortest + ")");
    EXPECT_EQ(canonical(form), form) << family.name;
    for (const std::string& arguments : {by_position, by_name, reversed})
      EXPECT_EQ(canonical(family.name + "(" + arguments + ")"), form)
          << family.name << " (" << arguments << ")";
    for (const std::string& alias : family.aliases) EXPECT_EQ(canonical(alias + "(" + shortest + ")"), form);
  }
}

TEST(CanonicalTest, EverySpellingOfATopologyHasOneForm) {
  expect_one_form(topology_families(),
                  [](const std::string& text) { return make_schedule(text, 16)->canonical(); });
}

TEST(CanonicalTest, EverySpellingOfAMethodHasOneForm) {
  expect_one_form(method_families(), [](const std::string& text) { return make_method(text)->canonical; });
}

TEST(CanonicalTest, EverySpellingOfACodecHasOneForm) {
  expect_one_form(codec_families(), [](const std::string& text) { return make_codec(text)->canonical; });
}

TEST(CanonicalTest, EverySpellingOfAnObjectiveOrDataSetHasOneForm) {
  expect_one_form(simulate::objective_families(),
                  [](const std::string& text) { return simulate::canonical_objective(text); });
  expect_one_form(data::data_sources(), [](const std::string& text) { return data::canonical_data(text); });
}

TEST(CanonicalTest, DisplayNamesStayShort) {
  const SchedulePtr schedule = make_schedule("base", 6);
  EXPECT_EQ(schedule->name(), "base");
  EXPECT_EQ(schedule->canonical(), "base(k=1)");
  EXPECT_EQ(make_schedule("one-peer-exponential(seed=3)", 8)->canonical(),
            "one-peer-exponential(order=cyclic)");
  EXPECT_EQ(make_schedule("random-matching", 8, 7)->canonical(), "random-matching(seed=7)");
  EXPECT_EQ(make_schedule("periodic(base, 16)", 6)->canonical(),
            make_schedule("periodic(base(1), h=16)", 6)->canonical());
  EXPECT_EQ(make_method("choco(top-k)")->canonical, "choco(codec=top-k(fraction=0.01),gamma=0.1,seed=0)");
  EXPECT_EQ(make_method("choco(top-k)")->spec, "choco(top-k)");
}

// Specs that differ in meaning have different forms.
TEST(CanonicalTest, OtherParametersAreOtherForms) {
  EXPECT_NE(make_schedule("base(k=2)", 6)->canonical(), make_schedule("base", 6)->canonical());
  EXPECT_NE(make_method("local-sgd(4)")->canonical, make_method("local-sgd")->canonical);
}

TEST(CanonicalTest, RanksThatSpellAScheduleDifferentlyAgree) {
  const auto ends = launchers()[0].run(3, [](const std::shared_ptr<Fabric>& fabric) {
    Flock flock(fabric);
    const char* spellings[] = {"base", "base(1)", "base(k=1)"};
    flock.set_schedule(spellings[flock.rank()]);
    std::vector<float> x(4, static_cast<float>(flock.rank()));
    for (int step = 0; step < 4; ++step) flock.neighbor_allreduce(x, "x");
    require(std::abs(x[0] - 1) < 1e-5, "the average of 0, 1 and 2");
  });
  for (const RankEnd& end : ends) EXPECT_TRUE(end.ok) << end.message;
}

}  // namespace
}  // namespace starling::method
