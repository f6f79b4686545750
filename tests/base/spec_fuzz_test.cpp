#include <algorithm>
#include <gtest/gtest.h>
#include <random>
#include <string>
#include <vector>

#include "starling/base/error.h"
#include "starling/base/spec.h"

namespace starling {
namespace {

using Generator = std::mt19937_64;

std::size_t below(Generator& generator, std::size_t bound) {
  return std::uniform_int_distribution<std::size_t>(0, bound - 1)(generator);
}

// Returns mostly characters of the grammar, sometimes any byte.
char random_character(Generator& generator) {
  static const std::string alphabet = "((()))[[]],,,,====\"\"\\ \tabk19.-/_";
  if (below(generator, 20) == 0) return static_cast<char>(below(generator, 256));
  return alphabet[below(generator, alphabet.size())];
}

std::string random_text(Generator& generator, std::size_t longest) {
  std::string text(below(generator, longest + 1), ' ');
  for (char& c : text) c = random_character(generator);
  return text;
}

// Deletes, overwrites, inserts or doubles a piece of the text.
std::string mutated(std::string text, Generator& generator) {
  for (std::size_t times = 1 + below(generator, 3); times > 0; --times) {
    const std::size_t at = below(generator, text.size() + 1);
    const std::size_t length = below(generator, 4);
    switch (below(generator, 4)) {
      case 0:
        text.erase(std::min(at, text.size()), length);
        break;
      case 1:
        if (at < text.size()) text[at] = random_character(generator);
        break;
      case 2:
        text.insert(at, 1, random_character(generator));
        break;
      default:
        text.insert(at, text.substr(below(generator, text.size() + 1), length));
    }
  }
  return text;
}

struct Tally {
  int parsed = 0;
  int refused = 0;
};

// Checks that a spec either parses and prints back to itself, or throws InvalidArgument with a position
// inside the text.
void check(const std::string& text, Tally& tally) {
  try {
    const Spec spec = parse_spec(text);
    const std::string again = spec.to_string();
    ASSERT_EQ(parse_spec(again), spec)
        << testing::PrintToString(text) << " became " << testing::PrintToString(again);
    ASSERT_EQ(parse_spec(again).to_string(), again);
    ++tally.parsed;
  } catch (const InvalidArgument& error) {
    const std::string message = error.what();
    const std::size_t found = message.rfind(" at position ");
    ASSERT_NE(found, std::string::npos) << message;
    const std::size_t position = std::stoul(message.substr(found + 13));
    ASSERT_GE(position, 1u);
    ASSERT_LE(position, text.size() + 1);
    ++tally.refused;
  } catch (const std::exception& error) {
    FAIL() << testing::PrintToString(text) << " threw " << error.what();
  }
}

TEST(SpecFuzzTest, RandomTextParsesOrIsRefused) {
  Generator generator(20240601);
  Tally tally;
  for (int i = 0; i < 100'000 && !HasFatalFailure(); ++i)
    check(random_text(generator, i % 2 == 0 ? 6 : 40), tally);
  EXPECT_GT(tally.parsed, 1'000);
  EXPECT_GT(tally.refused, 10'000);
}

TEST(SpecFuzzTest, MutatedTextParsesOrIsRefused) {
  const std::vector<std::string> valid = {
      "ring",
      "base(k=2)",
      "periodic(one-peer-exponential(order=permuted,seed=7),h=16)",
      "live(ring, members=[0,2,5..9])",
      "custom(file=\"my \\\"graph\\\".csv\",negative=yes)",
      "hierarchical(outer=matcha(graph=grid(rows=2),budget=0.25),local=4)",
      "[[],[a,[b(c=[d])]]]",
      "f(\"a key\"=[],\"\",g())"};
  Generator generator(20240602);
  Tally tally;
  for (int i = 0; i < 100'000 && !HasFatalFailure(); ++i)
    check(mutated(valid[below(generator, valid.size())], generator), tally);
  EXPECT_GT(tally.parsed, 10'000);
  EXPECT_GT(tally.refused, 10'000);
}

std::string random_word(Generator& generator) {
  std::string word(below(generator, 5), ' ');
  for (char& c : word) c = random_character(generator);
  return word;
}

Spec random_spec(Generator& generator, int depth) {
  Spec spec;
  spec.is_list = below(generator, 4) == 0;
  if (!spec.is_list) spec.word = random_word(generator);
  const std::size_t count = depth == 0 ? 0 : below(generator, 4);
  for (std::size_t i = 0; i < count; ++i) {
    const bool keyed = !spec.is_list && below(generator, 2) == 0;
    spec.arguments.push_back({keyed ? "k" + random_word(generator) : "", random_spec(generator, depth - 1)});
  }
  return spec;
}

// Programs build specs, too (they add seeds to names), so every spec must have a text.
TEST(SpecFuzzTest, EverySpecHasATextThatParsesBack) {
  Generator generator(20240603);
  for (int i = 0; i < 20'000; ++i) {
    const Spec spec = random_spec(generator, 1 + i % 5);
    ASSERT_EQ(parse_spec(spec.to_string()), spec) << testing::PrintToString(spec.to_string());
  }
}

}  // namespace
}  // namespace starling
