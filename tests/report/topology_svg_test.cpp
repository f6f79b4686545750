#include "starling/report/topology_svg.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "report/markup_checker.h"
#include "report/toy_schedule.h"
#include "starling/base/error.h"

namespace starling::report {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

/// Rank i receives from i + 2^t.
ToySchedule::Fill toy_one_peer(Rank n) {
  return [n](Step step, Rank rank, Exchange& out) {
    out.self_weight = 0.5;
    out.add_source((rank + (Rank{1} << (step % 4))) % n, 0.5);
  };
}

CheckedMarkup check(const std::string& svg) {
  CheckedMarkup checked = check_markup(svg);
  EXPECT_EQ(checked.problem, "");
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
  return checked;
}

TEST(TopologySvg, FixedGraphHasOnePanelWithoutArrows) {
  const CheckedMarkup svg = check(topology_svg(ToySchedule("ring", 16, 1, toy_ring(16))));
  EXPECT_EQ(svg.count_class("panel"), 1U);
  EXPECT_EQ(svg.count_class("node"), 16U);
  EXPECT_EQ(svg.count_class("head"), 0U);
  EXPECT_EQ(svg.texts("rank").size(), 16U);
  EXPECT_THAT(svg.texts("title"), ElementsAre("ring"));
  EXPECT_THAT(svg.texts("note").front(), HasSubstr("n = 16"));
}

TEST(TopologySvg, EachMutualEdgeIsDrawnOnce) {
  const std::string text = topology_svg(ToySchedule("ring", 16, 1, toy_ring(16)));
  const CheckedMarkup svg = check(text);
  std::size_t moves = 0;
  for (const Element& element : svg.elements)
    if (element.attributes.count("class") != 0 && element.attributes.at("class") == "line")
      for (const char c : element.attributes.at("d")) moves += c == 'M' ? 1 : 0;
  EXPECT_EQ(moves, 16U);
}

TEST(TopologySvg, ChangingScheduleHasOnePanelPerRoundWithArrows) {
  const CheckedMarkup svg = check(topology_svg(ToySchedule("one-peer", 16, 4, toy_one_peer(16))));
  EXPECT_THAT(svg.texts("caption"), ElementsAre("round 0", "round 1", "round 2", "round 3"));
  EXPECT_EQ(svg.count_class("panel"), 4U);
  EXPECT_GT(svg.count_class("head"),
            3U);  // one path of arrowheads per round, except for the mutual hop n/2, and one in the legend
}

TEST(TopologySvg, LongPeriodsAreCutAndSaySo) {
  const ToySchedule schedule("long", 8, 50, [](Step step, Rank rank, Exchange& out) {
    out.add_source((rank + 1 + static_cast<Rank>(step % 3)) % 8, 0.5);
  });
  const CheckedMarkup svg = check(topology_svg(schedule, {.max_rounds = 5}));
  EXPECT_EQ(svg.count_class("panel"), 5U);
  EXPECT_THAT(svg.texts("note").front(), HasSubstr("repeats after 50 rounds, 5 shown"));
}

TEST(TopologySvg, EqualRoundsShareAPanel) {
  const ToySchedule schedule("periodic", 12, 16, [](Step step, Rank rank, Exchange& out) {
    if (step % 16 == 15) {
      out.group.count = 12;
    } else {
      toy_ring(12)(step, rank, out);
    }
  });
  const CheckedMarkup svg = check(topology_svg(schedule));
  EXPECT_THAT(svg.texts("caption"), ElementsAre("rounds 0 – 14", "round 15"));
}

TEST(TopologySvg, RandomSchedulesSaySo) {
  const ToySchedule schedule("random", 9, 0, toy_one_peer(9), /*random=*/true);
  const CheckedMarkup svg = check(topology_svg(schedule));
  EXPECT_EQ(svg.count_class("panel"), 6U);
  EXPECT_THAT(svg.texts("note").front(), HasSubstr("redrawn from step to step"));
}

TEST(TopologySvg, GroupMeansAreHullsNotCliques) {
  const ToySchedule schedule("groups", 256, 1, [](Step, Rank rank, Exchange& out) {
    out.group.first = rank - rank % 64;
    out.group.count = 64;
  });
  const std::string text = topology_svg(schedule);
  const CheckedMarkup svg = check(text);
  EXPECT_EQ(svg.count_class("hull"), 4U + 1U);  // and one in the legend
  EXPECT_EQ(svg.count_class("line"), 0U);
  EXPECT_LT(text.size(), 60'000U);
}

TEST(TopologySvg, TwoBlocksHaveTwoColorsAndALegend) {
  const ToySchedule schedule("ceca", 9, 2, [](Step step, Rank rank, Exchange& out) {
    out.sources.push_back({(rank + 2) % 9, step % 2 == 0 ? Lane::a : Lane::b, 0.5, 0.5});
  });
  const CheckedMarkup svg = check(topology_svg(schedule));
  EXPECT_THAT(svg.texts("note"), ElementsAre(HasSubstr("n = 9"), "sends block a", "sends block b"));
  EXPECT_EQ(svg.count_class("b"), 2U);
  EXPECT_EQ(svg.count_class("a"), 2U);
}

TEST(TopologySvg, NegativeWeightsAreDashed) {
  const ToySchedule schedule("laplacian", 5, 1, [](Step, Rank rank, Exchange& out) {
    out.add_pair((rank + 1) % 5, 0.4);
    out.add_pair((rank + 4) % 5, 0.4);
    out.add_pair((rank + 2) % 5, -0.1);
    out.add_pair((rank + 3) % 5, -0.1);
  });
  const CheckedMarkup svg = check(topology_svg(schedule));
  EXPECT_EQ(svg.count_class("negative"), 2U);
  EXPECT_THAT(svg.texts("note").front(), HasSubstr("-0.1 to 0.4"));
}

TEST(TopologySvg, MarksIdleRanks) {
  const ToySchedule schedule("pairs", 5, 1, [](Step, Rank rank, Exchange& out) {
    if (rank < 4) out.add_pair(rank ^ 1, 0.5);
  });
  const CheckedMarkup svg = check(topology_svg(schedule));
  EXPECT_EQ(svg.count_class("idle"), 1U + 1U);  // and one in the legend
}

TEST(TopologySvg, SizesFromOneToTheLimit) {
  const CheckedMarkup one = check(topology_svg(ToySchedule("ring", 1, 1, [](Step, Rank, Exchange&) {})));
  EXPECT_EQ(one.count_class("node"), 1U);
  check(topology_svg(
      ToySchedule("ring", 2, 1, [](Step, Rank rank, Exchange& out) { out.add_pair(1 - rank, 0.5); })));
  EXPECT_EQ(check(topology_svg(ToySchedule("ring", 64, 1, toy_ring(64)))).texts("rank").size(), 64U);
  EXPECT_EQ(check(topology_svg(ToySchedule("ring", 65, 1, toy_ring(65)))).texts("rank").size(), 0U);
  EXPECT_EQ(check(topology_svg(ToySchedule("ring", 512, 1, toy_ring(512)))).count_class("node"), 512U);
  try {
    topology_svg(ToySchedule("ring", 513, 1, toy_ring(513)));
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("512"));
  }
  EXPECT_THROW(topology_svg(ToySchedule("ring", 4, 1, toy_ring(4)), {.max_rounds = 0}), InvalidArgument);
}

TEST(TopologySvg, HostileNamesAreEscaped) {
  const std::string text =
      topology_svg(ToySchedule("</text><script>alert('&')</script>\x01", 4, 1, toy_ring(4)));
  check(text);
  EXPECT_THAT(text, Not(HasSubstr("<script")));
  EXPECT_THAT(text, HasSubstr("&lt;script&gt;"));
}

TEST(TopologySvg, FollowsTheColorScheme) {
  EXPECT_THAT(topology_svg(ToySchedule("ring", 4, 1, toy_ring(4))), HasSubstr("prefers-color-scheme:dark"));
}

}  // namespace
}  // namespace starling::report
