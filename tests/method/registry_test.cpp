#include "starling/method/registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "starling/base/error.h"

namespace starling::method {
namespace {

using testing::HasSubstr;

std::string refusal(const std::string& text) {
  try {
    make_method(text);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return {};
}

TEST(MethodRegistry, MakesEveryMethodWithItsDefaults) {
  for (const MethodFamily& family : method_families())
    EXPECT_NE(make_method(family.name), nullptr) << family.name;
}

TEST(MethodRegistry, NamesTheClosestMethodAndAllValidOnes) {
  EXPECT_THAT(refusal("dsgd-awk"), HasSubstr("did you mean dsgd-awc?"));
  EXPECT_THAT(refusal("dsgd"), HasSubstr("did you mean dsgd-atc or dsgd-awc?"));
  EXPECT_THAT(refusal("sgd"), HasSubstr("valid are allreduce, allreduce-model, parameter-server, dsgd-atc"));
}

TEST(MethodRegistry, RefusesParametersThatAMethodDoesNotHave) {
  EXPECT_THAT(refusal("dsgd-awc(h=3)"), HasSubstr("h"));
  EXPECT_THAT(refusal("local-sgd(tau=0)"), HasSubstr("tau"));
  EXPECT_THAT(refusal("relay-sgd(missing=zero)"), HasSubstr("counts, reference"));
}

TEST(MethodRegistry, TakesAProgramsOwnMethodOnce) {
  class Alone : public Method {
    void adapt(Block& block) override { block.update(); }
  };
  const MethodFamily family{
      "alone", "never talks", {}, [](const Parameters&) { return std::make_shared<Alone>(); }};
  register_method(family);
  EXPECT_NE(make_method("alone"), nullptr);
  EXPECT_THROW(register_method(family), InvalidArgument);
}

}  // namespace
}  // namespace starling::method
