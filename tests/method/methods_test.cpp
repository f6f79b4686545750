#include <gmock/gmock.h>

#include "base/test_name.h"
#include "method/same_models.h"

// Compares every method with its dense reference, step by step.

namespace starling::method {
namespace {

struct MethodCase {
  std::string method;  // with its parameters
  std::string topology;
  // Tolerances. A codec can magnify rounding differences up to one of its steps; with float64, up to the
  // rounding to float32.
  Number float32_within = 1e-5L;
  Number float64_within = 1e-10L;
};

void PrintTo(const MethodCase& one, std::ostream* out) {
  *out << one.method << " on " << one.topology;
}

struct LocalCase {
  std::string text;
  LocalRule rule;
};

std::vector<LocalCase> local_cases() {
  return {{"sgd(lr=0.2,weight_decay=0.05)", {.kind = "sgd", .lr = 0.2, .weight_decay = 0.05}},
          {"momentum(lr=0.1,momentum=0.7)", {.kind = "sgd", .lr = 0.1, .momentum = 0.7}},
          {"nesterov(lr=0.1,momentum=0.6,weight_decay=0.1)",
           {.kind = "sgd", .lr = 0.1, .momentum = 0.6, .nesterov = true, .weight_decay = 0.1}},
          {"adam(lr=0.05,beta1=0.8,beta2=0.95,eps=0.001,weight_decay=0.1)",
           {.kind = "adam", .lr = 0.05, .weight_decay = 0.1, .beta1 = 0.8, .beta2 = 0.95, .eps = 0.001}},
          {"adamw(lr=0.05,beta1=0.8,beta2=0.95,eps=0.001,weight_decay=0.1)",
           {.kind = "adam",
            .lr = 0.05,
            .weight_decay = 0.1,
            .decoupled = true,
            .beta1 = 0.8,
            .beta2 = 0.95,
            .eps = 0.001}}};
}

// The local optimizers that a method supports, with the reference rule for each.
std::vector<LocalCase> local_cases_of(const std::string& method) {
  const std::string needed = make_method(method)->needs().optimizer;
  std::vector<LocalCase> all;
  for (const LocalCase& one : local_cases())
    if (one.text.starts_with(needed)) all.push_back(one);
  if (!method.starts_with("accum-adam")) return all;
  all.resize(1);  // the moments' settings are the same
  all[0].rule.kind = "accum";
  all[0].rule.decoupled = method.starts_with("accum-adamw");
  all[0].rule.s = method.find("s=4") == std::string::npos ? 1 : 4;
  return all;
}

class MethodsTest : public testing::TestWithParam<MethodCase> {
 protected:
  static bool possible(Rank n) {
    const std::string& topology = GetParam().topology;
    return topology != "ceca-1p" || n % 2 == 0 || n == 1;
  }
  template <typename T>
  static void check(Rank n, const LocalCase& local, Number tolerance,
                    const std::function<bool(Rank, Step)>& skips) {
    MethodRun run;
    run.problem = {.n = n};
    run.options = {.method = GetParam().method, .topology = GetParam().topology, .optimizer = local.text};
    run.skips = skips;
    const auto dense = make_dense({GetParam().method, GetParam().topology}, run.problem, local.rule);
    dense->skips = skips;
    EXPECT_TRUE(same_models(trajectory<T>(run), *dense, tolerance)) << local.text << ", " << n << " ranks";
  }
  static void check_both(Rank n, const LocalCase& local, const std::function<bool(Rank, Step)>& skips) {
    check<double>(n, local, GetParam().float64_within, skips);
    check<float>(n, local, GetParam().float32_within, skips);
  }
};

TEST_P(MethodsTest, FollowsItsEquations) {
  for (const Rank n : {1, 2, 4, 5, 6})  // 6 - 1 = 101 in binary: a digit 0 with an even n
    for (const LocalCase& local : local_cases_of(GetParam().method))
      if (possible(n)) check_both(n, local, [](Rank, Step) { return false; });
}

// Gradients of skipped steps are NaN.
TEST_P(MethodsTest, ARankThatSkipsAStepTakesPartUnchanged) {
  const std::function<bool(Rank, Step)> patterns[] = {
      [](Rank rank, Step step) { return (rank + step) % 3 == 0; },
      [](Rank, Step step) { return step < 2 || step == 7; },  // no rank has a gradient
  };
  for (const Rank n : {1, 4, 5})
    for (const auto& skips : patterns)
      if (possible(n)) check_both(n, local_cases_of(GetParam().method)[0], skips);
}

std::vector<MethodCase> cases() {
  std::vector<MethodCase> all = {
      {"allreduce", "exponential"},
      {"allreduce-model", "exponential"},
      {"parameter-server", "exponential"},
      {"local-sgd(tau=3)", "exponential"},
      {"gossip-pga(h=3)", "ring"},
      {"gossip-pga(h=4)", "one-peer-exponential"},
      {"gossip-pga(h=5)", "ceca"},
      {"hierarchical", "complete"},  // all on one machine: the mean
      {"dadam", "ring"},
      {"accum-adam", "exponential"},
      {"accum-adam(s=4)", "ring"},
      {"accum-adamw(s=4)", "one-peer-exponential"},
  };
  for (const char* topology : {"ring", "one-peer-exponential", "complete", "star", "od-equidyn(seed=3)",
                               "base(k=1)", "ceca", "ceca(k=2)", "ceca-1p"})
    all.push_back({"dsgd-atc", topology});
  for (const char* topology : {"ring", "exponential", "one-peer-exponential", "complete", "star",
                               "ou-equidyn(seed=5)", "periodic(ring,h=3)"})
    all.push_back({"dsgd-awc", topology});
  for (const char* topology : {"ring", "one-peer-exponential", "complete"})
    all.push_back({"gradient-tracking", topology});
  for (const char* topology : {"ring", "star(weights=push)", "chain(weights=push)", "fold-unfold"})
    all.push_back({"push-sum", topology});
  for (const char* missing : {"counts", "reference", "own"})
    for (const char* topology : {"chain", "binary-tree", "star", "double-binary-trees"})
      all.push_back({fmt::format("relay-sgd(missing={})", missing), topology});
  for (const char* method :
       {"lag(threshold=0)", "lag(threshold=0.1)", "lag(threshold=0.5)", "lag(threshold=100)"})
    for (const char* topology : {"ring", "exponential", "star"}) all.push_back({method, topology});
  for (const char* topology : {"ring", "star", "complete"})
    for (const char* method : {"proxskip(p=1)", "proxskip(p=0.4,seed=3)"}) all.push_back({method, topology});
  for (const char* topology : {"ring", "exponential", "one-peer-exponential", "complete"})
    all.push_back({"quasi-global-momentum(mu=0.7)", topology});
  all.push_back({"diloco(h=3)", "ring"});
  for (const char* topology : {"random-matching(seed=4)", "base(k=1)"})
    all.push_back({"noloco(h=3)", topology});
  for (const char* method : {"extra", "exact-diffusion", "d2"})
    for (const char* topology : {"ring", "star", "chain"}) all.push_back({method, topology});
  for (const char* topology : {"ring", "one-peer-exponential", "exponential", "complete"})
    all.push_back({"diging", topology});
  for (const char* topology : {"ring", "star(weights=push)", "chain(weights=push)", "one-peer-exponential"})
    all.push_back({"push-diging", topology});
  for (const char* method :
       {"relay-sgd(missing=counts,overlap=true)", "relay-sgd(missing=reference,overlap=true)",
        "relay-sgd(missing=own,overlap=true)", "relay-sum-grad"})
    for (const char* topology : {"chain", "binary-tree", "star", "double-binary-trees"})
      all.push_back({method, topology});
  for (const char* topology : {"ring", "exponential", "star"}) {
    all.push_back({"choco(codec=identity,gamma=1)", topology});
    all.push_back({"choco(codec=top-k(fraction=0.4),gamma=0.4)", topology, 1e-2L});
    all.push_back({"choco(codec=fp16,gamma=0.8)", topology, 1e-3L});
  }
  all.push_back({"bytegrad", "ring", 2e-2L, 1e-6L});
  all.push_back({"qsgd(levels=3)", "ring", 0.2L});
  all.push_back({"powersgd(rank=2)", "ring"});
  for (const char* feedback : {"true", "false"}) {
    const auto allreduce = [&](const char* codec) {
      return fmt::format("compressed-allreduce(codec={},feedback={})", codec, feedback);
    };
    all.push_back({allreduce("top-k(fraction=0.4)"), "ring", 2e-2L, 1e-6L});
    all.push_back({allreduce("fp16"), "ring", 2e-2L, 1e-6L});
    all.push_back({allreduce("identity"), "ring"});
  }
  all.push_back({"sign-sgd", "ring"});
  all.push_back({"low-precision-ring", "ring", 2e-2L});
  all.push_back({"qadam(warmup=5)", "ring", 5e-2L, 1e-6L});
  return all;
}

std::string case_name(const testing::TestParamInfo<MethodCase>& test) {
  return test_name(test.param.method + "_" + test.param.topology);
}

INSTANTIATE_TEST_SUITE_P(All, MethodsTest, testing::ValuesIn(cases()), case_name);

TEST(MethodsListTest, EveryMethodOfTheRegistryIsHere) {
  for (const MethodFamily& family : method_families()) {
    bool found = family.name.rfind("test-", 0) == 0 || family.name == "alone" ||  // registered by tests
                 make_method(family.name)->asynchronous();                        // no fixed order to follow
    for (const MethodCase& one : cases()) found = found || parse_spec(one.method).word == family.name;
    EXPECT_TRUE(found) << family.name;
  }
}

// Codecs and thresholds work per parameter: each parameter is an independent problem.
TEST(ParametersTest, MethodsThatKnowThemTreatEachAlone) {
  for (const char* method : {"lag(threshold=0.2)", "choco(codec=top-k(fraction=0.2),gamma=0.4)", "bytegrad",
                             "low-precision-ring", "qadam(warmup=5)"}) {
    MethodRun run;
    run.problem = {.n = 4, .count = 40};
    const LocalCase local = local_cases_of(method)[0];
    run.options = {.method = method, .topology = "ring", .optimizer = local.text};
    run.parts = 2;
    run.parameters = 4;
    const auto found = trajectory<double>(run);
    for (std::size_t p = 0; p < run.parameters; ++p) {
      const std::size_t first = cut(run.problem.count, p, run.parameters);
      const auto part = found.part(first, cut(run.problem.count, p + 1, run.parameters) - first);
      const auto dense = make_dense({method, "ring"}, part.problem, local.rule);
      EXPECT_TRUE(same_models(part, *dense, 1e-6L)) << method << ", parameter " << p;
    }
  }
}

// Two machines of two ranks: the mean within a machine, an exchange between machines; all weights are 1/4.
TEST(HierarchicalTest, TakesTheMeanWithinAMachineAndNeighborsBetween) {
  setenv("STARLING_RANKS_PER_MACHINE", "2", 1);
  for (const Rank n : {4, 6}) {
    MethodRun run;
    run.problem = {.n = n};
    run.options = {.method = "hierarchical", .topology = "ring", .optimizer = "sgd(lr=0.2)"};
    const auto found = trajectory<double>(run);
    // W is a ring over machines whose entries are shared by two ranks: with 2 or 3 machines, the mean of all
    // ranks.
    const auto dense = make_dense({"dsgd-atc", "complete"}, run.problem, {.kind = "sgd", .lr = 0.2});
    EXPECT_TRUE(same_models(found, *dense, 1e-10L)) << n;
  }
  MethodRun run;
  run.problem = {.n = 8};
  run.options = {.method = "hierarchical", .topology = "one-peer-exponential", .optimizer = "sgd(lr=0.2)"};
  const auto found = trajectory<double>(run);
  const auto outer = make_dense({"dsgd-atc", "hierarchical(outer=one-peer-exponential,local=2)"}, run.problem,
                                {.kind = "sgd", .lr = 0.2});
  EXPECT_TRUE(same_models(found, *outer, 1e-10L));
  unsetenv("STARLING_RANKS_PER_MACHINE");
}

}  // namespace
}  // namespace starling::method
