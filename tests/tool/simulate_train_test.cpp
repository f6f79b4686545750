#include <cmath>
#include <gmock/gmock.h>

#include "tool/tool_runner.h"

namespace starling::tool {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using Words = std::vector<std::string>;

const std::string kQuadratic = STARLING_EXAMPLES "/simulate/quadratic.json";
const std::string kCluster = STARLING_EXAMPLES "/simulate/cluster.toml";

ToolRun train(Words more) {
  Words words = {"simulate", "train"};
  words.insert(words.end(), more.begin(), more.end());
  return run_tool(words);
}

json trained(Words more) {
  more.push_back("--json");
  const ToolRun run = train(more);
  EXPECT_EQ(run.status, 0) << run.err;
  return run.status == 0 ? run.json() : json();
}

// The document without the times that were measured here.
json without_times(json document) {
  for (json& result : document["results"]) {
    result.erase("wall_seconds");
    result.erase("gradient_seconds");
  }
  return document;
}

TEST(SimulateTrain, ReportsDivergenceAndContinuesWithTheOthers) {
  const Words wild = {"-n", "4", "-t", "ring", "--lr", "50", "--steps", "2000", "-m", "dsgd-atc"};
  const ToolRun one = train(wild);
  EXPECT_EQ(one.status, 3);
  EXPECT_THAT(one.err, testing::ContainsRegex(
                           "starling: dsgd-atc, ring: diverged: node [0-3]'s model was not finite at step "));
  Words both = wild;
  both.push_back("sign-sgd");  // its steps have length lr whatever the gradient
  const ToolRun two = train(both);
  EXPECT_EQ(two.status, 0);
  EXPECT_EQ(two.err, "");
  EXPECT_THAT(two.out, AllOf(testing::ContainsRegex("dsgd-atc +ring +diverged"),
                             HasSubstr("dsgd-atc, ring: diverged: node ")));
  const json results = trained(both)["results"];
  EXPECT_LT(results[0]["diverged"]["step"], 2000);
  EXPECT_TRUE(results[1]["diverged"].is_null());
}

// x' = W (x - lr g) on a ring of four, all weights 1/3, computed from the file alone.
TEST(SimulateTrain, TraceFollowsTheEquation) {
  const json seen = trained({"--problem", "quadratic", "--data", kQuadratic, "-n", "4", "--method",
                             "dsgd-atc", "--topology", "ring", "--lr", "0.1", "--steps", "25", "--trace"});
  const json file = json::parse(read_file(kQuadratic));
  std::vector<std::vector<double>> x(4, file["x0"].get<std::vector<double>>());
  ASSERT_EQ(seen["trace"].size(), 26U) << "the start, and every step";
  for (std::size_t step = 0; step <= 25; ++step) {
    ASSERT_EQ(seen["trace"][step].size(), 4U);
    for (std::size_t node = 0; node < 4; ++node)
      for (std::size_t k = 0; k < 2; ++k)
        EXPECT_NEAR(seen["trace"][step][node][k].get<double>(), x[node][k], 1e-14) << step << ", " << node;
    auto half = x;
    for (std::size_t node = 0; node < 4; ++node)
      for (std::size_t k = 0; k < 2; ++k)
        half[node][k] -=
            0.1 * file["a"][node][k].get<double>() * (x[node][k] - file["b"][node][k].get<double>());
    for (std::size_t node = 0; node < 4; ++node)
      for (std::size_t k = 0; k < 2; ++k)
        x[node][k] = (half[(node + 3) % 4][k] + half[node][k] + half[(node + 1) % 4][k]) / 3;
  }
}

TEST(SimulateTrain, CurveMatchesTheTrace) {
  const json seen = trained({"--problem", "quadratic", "--data", kQuadratic, "--topology", "ring", "--lr",
                             "0.1", "--steps", "9", "--trace"});
  const json file = json::parse(read_file(kQuadratic));
  const json& curve = seen["results"][0]["curve"];
  EXPECT_EQ(curve.front()[0], 0);
  EXPECT_EQ(curve.back()[0], 9);
  for (const json& point : curve) {
    const json& nodes = seen["trace"][point[0].get<std::size_t>()];
    double spread = 0, value = 0, squares = 0, least = 0;
    for (std::size_t k = 0; k < 2; ++k) {
      double mean = 0, slope = 0, curvature = 0, pull = 0;
      for (std::size_t node = 0; node < 4; ++node) mean += nodes[node][k].get<double>() / 4;
      for (std::size_t node = 0; node < 4; ++node) {
        const double a = file["a"][node][k], b = file["b"][node][k], own = nodes[node][k];
        spread += (own - mean) * (own - mean) / 4;
        value += a * (mean - b) * (mean - b) / 8;
        slope += a * (mean - b) / 4;
        curvature += a;
        pull += a * b;
      }
      squares += slope * slope;
      for (std::size_t node = 0; node < 4; ++node) {
        const double a = file["a"][node][k], b = file["b"][node][k];
        least += a * (pull / curvature - b) * (pull / curvature - b) / 8;
      }
    }
    EXPECT_NEAR(point[1].get<double>(), value - least, 1e-12);
    EXPECT_NEAR(point[2].get<double>(), std::sqrt(squares), 1e-12);
    EXPECT_NEAR(point[3].get<double>(), std::sqrt(spread), 1e-12);
  }
  EXPECT_EQ(curve.back()[1], seen["results"][0]["gap"]);
}

TEST(SimulateTrain, ResultDoesNotDependOnThreads) {
  for (const std::string problem :
       {"logistic(batch=7, samples=20)", "quadratic(noise=1)", "mlp(batch=3, hidden=4)"}) {
    const Words words = {"-n",       "23",       "--problem",         problem, "--topology", "od-equidyn",
                         "--method", "dsgd-atc", "gradient-tracking", "--lr",  "0.05",       "--steps",
                         "40",       "--threads"};
    const auto with = [&](const std::string& threads, const std::string& seed = "5") {
      Words all = words;
      all.insert(all.end(), {threads, "--seed", seed});
      return without_times(trained(all));
    };
    const json one = with("1");
    EXPECT_EQ(one, with("3")) << problem;
    EXPECT_EQ(one, with("0")) << problem;
    EXPECT_NE(one["results"], with("1", "6")["results"]) << problem;
  }
}

TEST(SimulateTrain, ImprovesOnAllProblems) {
  for (const std::string problem : {"quadratic", "least-squares", "logistic", "mlp"}) {
    for (const std::string precision : {"float64", "float32"}) {
      const json seen = trained({"-n", "6", "--problem", problem, "--lr", "0.2", "--steps", "60", "--dim",
                                 "5", "--precision", precision});
      const json& result = seen["results"][0];
      EXPECT_LT(result["gap"].get<double>(), 0.7 * result["curve"][0][1].get<double>()) << problem;
      EXPECT_GT(result["gap"].get<double>(), 0) << problem;
      EXPECT_EQ(seen["least_known"], problem != "mlp");
      EXPECT_EQ(seen["precision"], precision);
    }
  }
}

TEST(SimulateTrain, OneNodeIsPlainGradientDescent) {
  const Folder folder;
  const std::string file = folder.write("p.json", R"({"a": [[2]], "b": [[3]], "x0": [1]})");
  const json seen = trained({"--data", file, "--lr", "0.25", "--steps", "2", "--trace"});
  EXPECT_EQ(seen["trace"], json::parse("[[[1]], [[2]], [[2.5]]]"));
  EXPECT_EQ(seen["results"][0]["bytes"], 0);
}

TEST(SimulateTrain, ManyPairsMakeATableAndAPage) {
  const Folder folder;
  const std::string page = folder.path("race.html");
  const ToolRun run = train({"-n", "6", "--method", "dsgd-atc", "gradient-tracking", "allreduce",
                             "--topology", "ring", "ceca", "--lr", "0.1", "--steps", "20", "--html", page});
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.out, AllOf(HasSubstr("dsgd-atc           ring"), HasSubstr("gradient-tracking  ceca"),
                             HasSubstr("not run because"), HasSubstr("mixes two blocks"),
                             HasSubstr("allreduce          - "), HasSubstr("report: " + page)));
  EXPECT_THAT(read_file(page), AllOf(HasSubstr("Optimality gap against bytes sent"),
                                     HasSubstr("Optimality gap against modeled seconds"),
                                     HasSubstr("Consensus distance against steps"),
                                     HasSubstr("mixes two blocks"), HasSubstr("ring on 8 ranks")));
  const json seen =
      trained({"-n", "6", "--method", "gradient-tracking", "--topology", "ring", "ceca", "--steps", "2"});
  EXPECT_TRUE(seen["results"][0]["refusal"].is_null());
  EXPECT_THAT(seen["results"][1]["refusal"].get<std::string>(), HasSubstr("mixes two blocks"));
  EXPECT_FALSE(seen["results"][1].contains("gap"));
}

TEST(SimulateTrain, DivergenceIsAResult) {
  const Folder folder;
  const std::string page = folder.path("race.html");
  const ToolRun run = train({"-n", "4", "--lr", "1e200", "--steps", "30", "--html", page});
  EXPECT_EQ(run.status, 3) << run.err;
  EXPECT_THAT(run.out, HasSubstr("exponential  diverged  diverged"));
  EXPECT_THAT(read_file(page), AllOf(HasSubstr("diverged"), Not(HasSubstr("Optimality gap"))));
  const ToolRun again = train({"-n", "4", "--lr", "1e200", "--steps", "30", "--json"});
  EXPECT_TRUE(json::parse(again.out)["results"][0]["gap"].is_null());
}

TEST(SimulateTrain, TimesComeFromTheFile) {
  const Folder folder;
  const auto seconds = [&](const std::string& toml, Words more = {}) {
    Words words = {"-n",        "4",       "--topology", "complete", "--method",
                   "allreduce", "--steps", "10",         "--time",   folder.write("time.toml", toml)};
    words.insert(words.end(), more.begin(), more.end());
    return trained(words)["results"][0]["modelled_seconds"].get<double>();
  };
  EXPECT_NEAR(seconds("compute = 0.5\nlatency = 0\nbandwidth = 1e9"), 5, 1e-6);
  EXPECT_NEAR(seconds("compute = 0\nlatency = 0\nbandwidth = 1e9\n[compute_of]\n2 = 0.25"), 2.5, 1e-6);
  EXPECT_NEAR(
      seconds("compute = 0\nlatency = 0\nbandwidth = 1e9\n[[straggler]]\nnodes = [1]\nevery = 3\nextra = 1"),
      3, 1e-6);
  EXPECT_GT(seconds("compute = 0\nlatency = 1"), 10 - 1e-6);
  const std::string chance = "[[straggler]]\nprobability = 0.5\nextra = 1";
  EXPECT_EQ(seconds(chance), seconds(chance));
  EXPECT_NE(seconds(chance), seconds(chance, {"--seed", "1"}));
  EXPECT_EQ(train({"-n", "16", "--steps", "5", "--time", kCluster}).status, 0);
}

TEST(SimulateTrain, DroppedMessagesDependOnTheSeed) {
  const Words words = {"-n", "8", "--topology", "ring", "--steps", "30", "--lr", "0.1", "--drop", "0.3"};
  const json lossy = trained(words);
  EXPECT_EQ(without_times(lossy), without_times(trained(words)));
  EXPECT_EQ(lossy["drop"], 0.3);
  Words whole = words;
  whole.back() = "0";
  EXPECT_NE(lossy["results"][0]["gap"], trained(whole)["results"][0]["gap"]);
}

TEST(SimulateTrain, MistakesSayWhatIsValid) {
  const struct {
    Words words;
    std::string says;
  } cases[] = {
      {{}, "give the number of nodes (-n N), or --data FILE"},
      {{"-n", "5", "--data", kQuadratic}, "has 4 rows, one per node, but -n says 5"},
      {{"--dim", "3", "--data", kQuadratic}, "has 2 coordinates, but --dim says 3"},
      {{"--problem", "logistic", "--data", kQuadratic}, "--data is for --problem quadratic"},
      {{"-n", "4", "--problem", "logistik"}, "did you mean logistic?"},
      {{"-n", "4", "--method", "dsgd-act"}, "did you mean dsgd-atc?"},
      {{"-n", "4", "--topology", "ring", "rnig"}, "did you mean ring?"},
      {{"-n", "4", "--optimizer", "sgdd", "--topology", "ring", "star"}, "sgd"},
      {{"-n", "4", "--optimizer", "adam(bate1=0.5)"}, "adam has no parameter 'bate1' (did you mean beta1?)"},
      {{"-n", "4", "--topology", "base(kk=1)"}, "base has no parameter 'kk' (did you mean k?)"},
      {{"-n", "6", "--topology", "hypercube"}, "not a power of two"},
      {{"-n", "4", "--decay", "2"}, "--decay requires --decay-every"},
      {{"-n", "4", "--decay-every", "10"}, "--decay-every requires --decay"},
      {{"-n", "4", "--optimizer", "adam(lr=0.1)", "--lr", "0.2"},
       "--lr 0.2 and --optimizer adam(lr=0.1) contradict each other; give one"},
      {{"-n", "4", "--trace"}, "--trace needs --json"},
      {{"-n", "4", "--trace", "--json", "--topology", "ring", "star"}, "--trace is of one run"},
      {{"-n", "4", "--precision", "float16"}, "--precision"},
      {{"-n", "4", "--drop", "1.5"}, "--drop"},
      {{"-n", "4", "--seed", "-1"}, "--seed"},
      {{"-n", "4", "--time", kCluster}, "cluster.toml, line"},
      {{"-n", "4", "--html", "/no/such/folder/a.html"}, "/no/such/folder/a.html"},
      {{"--data", "/no/such/file.json"}, "/no/such/file.json: cannot be read"},
  };
  for (const auto& tested : cases) {
    const ToolRun run = train(tested.words);
    EXPECT_EQ(run.status, 2) << tested.says;
    EXPECT_THAT(run.err, AllOf(HasSubstr("starling: "), HasSubstr(tested.says)));
    EXPECT_EQ(run.out, "") << tested.says;
  }
}

TEST(SimulateTrain, TakesTheLearningRateOfTheOptimizer) {
  const ToolRun inside = train({"-n", "4", "--steps", "5", "--json", "--optimizer", "sgd(lr=0.3)"});
  const ToolRun option = train({"-n", "4", "--steps", "5", "--json", "--lr", "0.3"});
  ASSERT_EQ(inside.status, 0) << inside.err;
  EXPECT_EQ(inside.json().at("lr"), 0.3);
  EXPECT_EQ(inside.json().at("results").at(0).at("curve").back().at(1),
            option.json().at("results").at(0).at("curve").back().at(1));
}

TEST(SimulateTrain, HelpListsTheProblems) {
  const ToolRun run = train({"--help"});
  EXPECT_THAT(run.out,
              AllOf(HasSubstr("least-squares"), HasSubstr("regularizer=0.01"), HasSubstr("Example:")));
}

}  // namespace
}  // namespace starling::tool
