#include "starling/base/registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>

namespace starling {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

struct Dish {
  std::string name;
  std::vector<Parameter> parameters = {};
  std::vector<std::string> aliases = {};
};

std::unique_ptr<Registry<Dish>> menu() {
  return std::make_unique<Registry<Dish>>(
      "entree", std::vector<Dish>{{"soup",
                                   {{"salt", "0.5", "grams"},
                                    {"hot", "yes", "or cold"},
                                    {"from", "", "a file", ParameterKind::text}}},
                                  {"bread", {}, {"loaf"}},
                                  {"plate", {{"of", "bread", "what is on it", ParameterKind::codec}}}});
}

TEST(RegistryTemplateTest, FindsByNameAndAlias) {
  const auto dishes = menu();
  EXPECT_EQ(dishes->find("soup").name, "soup");
  EXPECT_EQ(dishes->find("loaf").name, "bread");
  EXPECT_EQ(&dishes->find(parse_spec("loaf()")), &dishes->find("bread"));
}

TEST(RegistryTemplateTest, RefusesUnknownNamesAndListsWithWhatIsValid) {
  const auto dishes = menu();
  EXPECT_THAT([&] { dishes->find("soap"); },
              ThrowsMessage<InvalidArgument>(
                  HasSubstr("unknown entree 'soap' (did you mean soup?); valid are soup, bread")));
  EXPECT_THAT([&] { dishes->find(parse_spec("[soup]")); },
              ThrowsMessage<InvalidArgument>("expected an entree's name, not the list [soup]"));
}

TEST(RegistryTemplateTest, AddsOnceAndKeepsReferences) {
  const auto dishes = menu();
  const Dish& soup = dishes->find("soup");
  for (int i = 0; i < 100; ++i) dishes->add({"dish-" + std::to_string(i)});
  EXPECT_EQ(&soup, &dishes->find("soup"));
  EXPECT_EQ(dishes->entries().size(), 103);
  EXPECT_THAT([&] { dishes->add({"soup"}); },
              ThrowsMessage<InvalidArgument>("an entree named 'soup' exists already"));
  EXPECT_THAT(
      [&] {
        dishes->add({"rolls", {}, {"loaf"}});
      },
      ThrowsMessage<InvalidArgument>("an entree named 'loaf' exists already"));
  EXPECT_THAT([&] { dishes->add({"fish(2)"}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("cannot be named 'fish(2)'")));
  EXPECT_THAT([&] { dishes->add({""}); }, ThrowsMessage<InvalidArgument>(HasSubstr("cannot be named")));
}

TEST(RegistryTemplateTest, OneCanonicalSpecForAllSpellings) {
  Registry<Dish>* all = nullptr;
  Registry<Dish> dishes("dish", menu()->entries(),
                        [&](ParameterKind, const Spec& part) { return all->canonical(part); });
  all = &dishes;
  const auto canonical = [&](const char* text) { return dishes.canonical(parse_spec(text)).to_string(); };
  for (const char* text : {"soup(from=007)", "soup(0.5, true, 007)", "soup( hot=yes, from=007, salt=5e-1)",
                           "soup(0.50, from=007)"})
    EXPECT_EQ(canonical(text), "soup(salt=0.5,hot=true,from=007)") << text;
  EXPECT_EQ(canonical("loaf"), "bread");
  EXPECT_EQ(canonical("plate"), "plate(of=bread)");
  EXPECT_EQ(canonical("plate(loaf)"), "plate(of=bread)");
  EXPECT_EQ(canonical("soup(salt=18446744073709551615,from=x)"),
            "soup(salt=18446744073709551615,hot=true,from=x)");
  EXPECT_THAT([&] { canonical("soup"); }, ThrowsMessage<InvalidArgument>(HasSubstr("soup needs from=")));
  EXPECT_THAT([&] { canonical("bread(3)"); },
              ThrowsMessage<InvalidArgument>(HasSubstr("too many arguments")));
}

}  // namespace
}  // namespace starling
