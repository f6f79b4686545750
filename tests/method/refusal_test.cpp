#include <gmock/gmock.h>
#include <set>
#include <utility>

#include "method/on_flock.h"
#include "starling/topology/registry.h"

namespace starling::method {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// The error of drive() with these options on five ranks; it must be the same on all.
template <typename T = float>
std::string refusal(const DriverOptions& options, Rank n = 5) {
  std::string said;
  const auto ends = launchers()[0].run(n, [&](const std::shared_ptr<Fabric>& fabric) {
    Flock flock(fabric);
    std::vector<T> x(3);
    std::vector<T> gradient(3);
    const std::string message =
        message_of<InvalidArgument>([&] { drive(flock, buffer_of(x), buffer_of(gradient), options); });
    if (flock.rank() == 0) said = message;
  });
  for (const RankEnd& end : ends)
    if (!end.ok) return end.message;
  return said;
}

TEST(MethodRefusalTest, TopologiesThatAMethodCannotFollow) {
  for (const char* method : {"dsgd-awc", "gradient-tracking", "push-sum", "dadam", "accum-adam"})
    EXPECT_THAT(refusal({.method = method, .topology = "ceca", .optimizer = "adam"}),
                HasSubstr("ceca mixes two blocks per rank, which only dsgd-atc can"))
        << method;
  for (const char* method : {"dsgd-awc", "dsgd-atc", "gradient-tracking", "gossip-pga", "relay-sgd"})
    EXPECT_THAT(
        refusal({.method = method, .topology = "chain(weights=push)"}),
        AllOf(HasSubstr("chain"),
              HasSubstr("only keeps sums, which needs push-sum, push-diging or async-push-sum; with ")))
        << method;
  EXPECT_THAT(
      refusal({.method = "relay-sgd", .topology = "ring"}),
      HasSubstr("a relay needs a tree, such as chain, binary-tree or star; ring on 5 ranks has a cycle"));
  EXPECT_THAT(refusal({.method = "relay-sgd", .topology = "od-equidyn"}),
              HasSubstr("a relay needs one tree"));
  EXPECT_THAT(refusal({.method = "relay-sgd", .topology = "ceca"}), HasSubstr("which only dsgd-atc can"));
  EXPECT_THAT(refusal({.method = "dsgd-atc", .topology = "ceca-1p"}), HasSubstr("n = 5 is odd"));
}

TEST(MethodRefusalTest, MisspeltTopologiesOfMethodsThatUseNone) {
  for (const char* method : {"allreduce", "local-sgd", "parameter-server"})
    EXPECT_THAT(refusal({.method = method, .topology = "rign"}),
                HasSubstr("unknown topology 'rign' (did you mean ring?)"))
        << method;
}

TEST(MethodRefusalTest, TrackersPushSumAndChocoNeedColumnsThatSumToOne) {
  for (const char* method :
       {"gradient-tracking", "diging", "push-sum", "push-diging", "async-push-sum", "choco"}) {
    EXPECT_THAT(refusal({.method = method, .topology = "star(weights=uniform)"}),
                AllOf(HasSubstr("needs weights whose columns sum to one"),
                      HasSubstr("gives rank 0 a total weight of 2.2 in step 0")))
        << method;
    EXPECT_THAT(refusal({.method = method, .topology = "star"}), HasSubstr("nothing was thrown")) << method;
  }
  EXPECT_THAT(refusal({.method = "push-sum", .topology = "star(weights=uniform)"}),
              HasSubstr("such as ring or exponential, or weights=push"));
}

/// The topologies that a text names, with their parameters.
std::set<std::string> topologies_in(const std::string& text) {
  std::set<std::string> found;
  for (const Family& family : topology_families())
    for (std::size_t at = text.find(family.name); at != std::string::npos;
         at = text.find(family.name, at + 1)) {
      const auto in_word = [&](std::size_t place) {
        return place < text.size() &&
               (std::isalnum(static_cast<unsigned char>(text[place])) != 0 || text[place] == '-');
      };
      const std::size_t end = at + family.name.size();
      const bool nested = at > 0 && (text[at - 1] == '(' || text[at - 1] == '=');
      if (nested || (at > 0 && in_word(at - 1)) || in_word(end)) continue;
      const bool has_parameters = end < text.size() && text[end] == '(';
      found.insert(text.substr(at, has_parameters ? text.find(')', end) + 1 - at : family.name.size()));
    }
  return found;
}

// Every topology that a refusal suggests must be accepted.
TEST(MethodRefusalTest, EveryRefusalNamesATopologyThatWorks) {
  const std::pair<std::vector<const char*>, std::vector<const char*>> refused[] = {
      {{"extra", "exact-diffusion", "d2"},
       {"exponential", "d-equistatic", "one-way-ring", "one-peer-exponential", "random-matching", "ceca",
        "chain(weights=push)"}},
      {{"d2"}, {"symmetric-exponential(weights=uniform)"}},
      {{"proxskip(p=0.5)"}, {"exponential", "one-peer-exponential", "ceca", "chain(weights=push)"}},
      {{"diging", "quasi-global-momentum", "lag"}, {"ceca", "chain(weights=push)"}},
      {{"push-diging", "noloco"}, {"ceca"}},
      {{"noloco"}, {"ring", "exponential", "complete", "star"}},
      {{"relay-sgd(overlap=true)", "relay-sum-grad"}, {"ring", "ceca", "od-equidyn", "complete"}},
  };
  for (const auto& [methods, topologies] : refused)
    for (const char* method : methods)
      for (const std::string topology : topologies) {
        const Rank n = topology.starts_with("symmetric") ? 16 : 8;
        const std::string said = refusal({.method = method, .topology = topology}, n);
        EXPECT_THAT(said, HasSubstr(topology.substr(0, topology.find('(')))) << method;
        int working = 0;
        for (const std::string& other : topologies_in(said)) {
          if (other.starts_with(topology.substr(0, topology.find('(')))) continue;
          EXPECT_THAT(refusal({.method = method, .topology = other}, n), HasSubstr("nothing was thrown"))
              << method << " was sent to " << other << " by: " << said;
          ++working;
        }
        EXPECT_GT(working, 0) << method << " on " << topology << ": " << said;
      }
}

TEST(MethodRefusalTest, UnknownNames) {
  EXPECT_THAT(refusal({.method = "dsdg-awc"}), HasSubstr("did you mean dsgd-awc?"));
  EXPECT_THAT(refusal({.topology = "rng"}), HasSubstr("did you mean ring?"));
  EXPECT_THAT(refusal({.optimizer = "adamm"}),
              AllOf(HasSubstr("optimizer"), HasSubstr("adamw"), HasSubstr("nesterov")));
  EXPECT_THAT(refusal({.optimizer = "[sgd]"}), HasSubstr("expected an optimizer's name, not the list [sgd]"));
}

TEST(MethodRefusalTest, OptimizersThatAMethodCannotUseAreNamedWithTheOneItNeeds) {
  for (const char* method : {"quasi-global-momentum", "proxskip"}) {
    EXPECT_THAT(refusal({.method = method, .topology = "ring", .optimizer = "adamw"}),
                HasSubstr("needs SGD without momentum, not adamw: "));
    EXPECT_THAT(refusal({.method = method, .topology = "ring", .optimizer = "momentum"}),
                HasSubstr("needs SGD without momentum, not momentum with momentum 0.9: "));
    EXPECT_THAT(refusal({.method = method, .topology = "ring", .optimizer = "sgd"}),
                HasSubstr("nothing was thrown"));
  }
  for (const char* method : {"dadam", "accum-adam", "qadam"})
    EXPECT_THAT(refusal({.method = method, .optimizer = "sgd"}),
                HasSubstr("needs Adam or AdamW (without amsgrad), not sgd: "));
}

TEST(MethodRefusalTest, ParametersOutOfRange) {
  EXPECT_THAT(refusal({.method = "gossip-pga(h=0)"}), HasSubstr("h"));
  EXPECT_THAT(refusal({.method = "local-sgd(tau=0)"}), HasSubstr("tau"));
  EXPECT_THAT(refusal({.method = "accum-adam(s=0)", .optimizer = "adam"}), HasSubstr("s"));
  EXPECT_THAT(refusal({.method = "accum-adamw(t=3)", .optimizer = "adam"}), HasSubstr("t"));
  EXPECT_THAT(refusal({.method = "relay-sgd(missing=zero)"}), HasSubstr("counts, reference"));
  EXPECT_THAT(refusal({.method = "dsgd-awc(ring)"}), HasSubstr("dsgd-awc"));
  EXPECT_THAT(refusal({.optimizer = "sgd(lr=-1)"}), HasSubstr("lr"));
  EXPECT_THAT(refusal({.optimizer = "sgd(momentum=0.9)"}), HasSubstr("momentum"));
  EXPECT_THAT(refusal({.optimizer = "momentum(momentum=1.5)"}), HasSubstr("momentum"));
  EXPECT_THAT(refusal({.optimizer = "adam(eps=-1)"}), HasSubstr("eps"));
  // beta1 = 1 would divide by zero.
  EXPECT_THAT(refusal({.optimizer = "adam(beta1=1)"}), HasSubstr("beta1"));
  EXPECT_THAT(refusal({.optimizer = "adamw(beta2=1)"}), HasSubstr("beta2"));
}

TEST(MethodRefusalTest, OptimizersWithoutMoments) {
  for (const char* method : {"dadam", "accum-adam", "accum-adamw(s=2)"})
    EXPECT_THAT(refusal({.method = method, .optimizer = "sgd"}),
                AllOf(HasSubstr(method), HasSubstr("needs Adam or AdamW"), HasSubstr("sgd")));
}

TEST(MethodRefusalTest, ShortMessagesWhereTheyWouldSpoilTheResult) {
  for (const char* message : {"bfloat16", "float16", "int8"}) {
    const auto refused = [&](const char* method, const char* topology) {
      return refusal({.method = method, .topology = topology, .message = message});
    };
    const auto use_float32 = AllOf(HasSubstr(message), HasSubstr("use float32"));
    EXPECT_THAT(refused("push-sum", "ring"), AllOf(HasSubstr("push-sum"), use_float32));
    EXPECT_THAT(refused("relay-sgd", "chain"), AllOf(HasSubstr("relay"), use_float32));
    EXPECT_THAT(refused("local-sgd", "ring"), AllOf(HasSubstr("local-sgd"), use_float32));
    EXPECT_THAT(refused("allreduce-model", "ring"), use_float32);
    EXPECT_THAT(refused("parameter-server", "ring"), AllOf(HasSubstr("parameter-server"), use_float32));
  }
  EXPECT_THAT(refusal({.topology = "hierarchical(ring,local=2)", .message = "bfloat16"}, 6),
              AllOf(HasSubstr("hierarchical"), HasSubstr("bfloat16"), HasSubstr("float32")));
  EXPECT_THAT(refusal({.topology = "hierarchical(ring,local=2)", .message = "int8"}, 6),
              AllOf(HasSubstr("hierarchical"), HasSubstr("int8"), HasSubstr("float32")));
  EXPECT_THAT(refusal({.message = "int16"}),
              AllOf(HasSubstr("int16"), HasSubstr("float32, float16, bfloat16"), HasSubstr("int8")));
  EXPECT_THAT(refusal({.method = "allreduce", .message = "int8"}),
              AllOf(HasSubstr("allreduce cannot take int8"), HasSubstr("float32, float16 and bfloat16"),
                    HasSubstr("bytegrad")));
  EXPECT_THAT(refusal<double>({.message = "bfloat16"}), AllOf(HasSubstr("float64"), HasSubstr("bfloat16")));
}

TEST(MethodRefusalTest, BlocksThatDoNotFit) {
  EXPECT_THAT(refusal<Half>({}), HasSubstr("float32 or float64, not float16"));
  const auto ends = launchers()[0].run(1, [](const std::shared_ptr<Fabric>& fabric) {
    Flock flock(fabric);
    std::vector<float> x(3), short_one(2);
    std::vector<double> wide(3);
    require(message_of<InvalidArgument>([&] { drive(flock, buffer_of(x), buffer_of(short_one), {}); }) ==
                "drive: x has 3 x float32, its gradient 2 x float32",
            "count");
    require(message_of<InvalidArgument>([&] {
              drive(flock, buffer_of(x), buffer_of(wide), {});
            }).find("3 x float64") != std::string::npos,
            "type");
  });
  for (const RankEnd& end : ends) EXPECT_TRUE(end.ok) << end.message;
}

}  // namespace
}  // namespace starling::method
