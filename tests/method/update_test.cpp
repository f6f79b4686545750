#include "starling/method/update.h"

#include <functional>
#include <gtest/gtest.h>

#include "starling/base/random.h"

namespace starling::method {
namespace {

using Make = std::function<UpdatePtr(ConstBuffer x, std::size_t segments, Hypers hypers)>;

std::vector<float> numbers(std::size_t count, std::uint64_t seed) {
  Random random(seed, 0, 0);
  std::vector<float> all(count);
  for (float& one : all) one = static_cast<float>(random.uniform() - 0.5);
  return all;
}

UpdatePass pass_over(std::vector<Term>& terms, std::vector<float>& x, std::vector<float>& gradient) {
  terms = {Term(x.data(), 0.75)};
  return {.from = terms, .gradient = buffer_of(gradient), .gradient_scale = 0.5, .x = buffer_of(x)};
}

// One pass for adjacent segments must be the same as one pass for each, whichever are active in a step.
void check(const Make& make) {
  const auto hypers = std::make_shared<std::vector<Hyper>>(2);
  (*hypers)[0] = {.lr = 0.1, .momentum = 0.9, .dampening = 0.25};
  (*hypers)[1] = {.lr = 0.02, .momentum = 0.5, .weight_decay = 0.1};
  std::vector<Segment> segments = {{0, 16, 0}, {16, 48, 0}, {64, 7, 0},
                                   {71, 9, 1}, {80, 33, 1}, {113, 16, 0}};
  const std::size_t count = 129;
  std::vector<float> x = numbers(count, 1);
  std::vector<std::vector<float>> alone;
  const UpdatePtr whole = make(buffer_of(x), segments.size(), hypers);
  std::vector<UpdatePtr> parts;
  for (const Segment& segment : segments) {
    const auto begin = x.begin() + static_cast<std::ptrdiff_t>(segment.begin);
    std::vector<float>& part = alone.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(segment.count));
    parts.push_back(make(buffer_of(part), 1, hypers));
  }
  const unsigned active[] = {0b111111, 0b111011, 0b000000, 0b110110, 0b111111, 0b101111, 0b111111};
  for (std::size_t step = 0; step < std::size(active); ++step) {
    std::vector<float> gradient = numbers(count, 10 + step);
    std::vector<Term> terms;
    std::vector<float> expected;
    for (std::size_t s = 0; s < segments.size(); ++s) {
      segments[s].active = (active[step] >> s & 1U) != 0;
      const auto begin = gradient.begin() + static_cast<std::ptrdiff_t>(segments[s].begin);
      std::vector<float> own(begin, begin + static_cast<std::ptrdiff_t>(segments[s].count));
      const Segment one{0, segments[s].count, segments[s].group, segments[s].active};
      parts[s]->apply(pass_over(terms, alone[s], own), {&one, 1});
      expected.insert(expected.end(), alone[s].begin(), alone[s].end());
    }
    whole->apply(pass_over(terms, x, gradient), segments);
    ASSERT_EQ(x, expected) << whole->name() << ", step " << step;
  }
}

TEST(UpdateTest, AdjacentSegmentsInOnePassHaveTheBitsOfOneEach) {
  check(make_sgd);
  for (const bool decoupled : {false, true}) {
    check([&](ConstBuffer x, std::size_t segments, Hypers hypers) {
      return make_adam(x, segments, std::move(hypers), decoupled);
    });
    check([&](ConstBuffer x, std::size_t segments, Hypers hypers) {
      return make_accum_adam(x, segments, std::move(hypers), decoupled, 2);
    });
  }
}

}  // namespace
}  // namespace starling::method
