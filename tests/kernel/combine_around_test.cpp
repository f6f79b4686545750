#include <cmath>
#include <gmock/gmock.h>
#include <numeric>

#include "blocks.h"
#include "starling/kernel/combine.h"
#include "starling/kernel/convert.h"

namespace starling::kernel {
namespace {

class CombineAroundTest : public EveryTarget {};
STARLING_ON_EVERY_TARGET(CombineAroundTest);

template <typename Body>
void for_messages(const Body& body) {
  body(std::type_identity<Half>{});
  body(std::type_identity<BFloat16>{});
  body(std::type_identity<float>{});
  body(std::type_identity<double>{});
}

// The type of the result for messages of type Q.
template <typename Q>
using Sum = std::conditional_t<std::is_same_v<Q, double>, double, float>;

TEST_P(CombineAroundTest, MatchesTheReferenceBitForBit) {
  for_messages([]<typename Q>(std::type_identity<Q>) {
    using S = Sum<Q>;
    for (std::size_t terms = 0; terms <= 6; ++terms)
      for (const std::size_t count : {0U, 1U, 7U, 16U, 33U, 70U, 1001U}) {
        const std::vector<S> x = odd_numbers<S>(count, 1);
        const std::vector<Q> own = odd_numbers<Q>(count, 2);
        std::vector<std::vector<Q>> others;
        std::vector<Term> list;
        for (std::size_t t = 0; t < terms; ++t) others.push_back(odd_numbers<Q>(count, 3 + t));
        for (std::size_t t = 0; t < terms; ++t)
          list.push_back({others[t].data(), 0.3 / static_cast<double>(t + 1)});
        std::vector<S> expected(x);
        std::vector<S> alone(count);
        for (std::size_t i = 0; i < count && terms > 0; ++i) {
          volatile S sum = 0;
          for (std::size_t t = 0; t < terms; ++t) {
            volatile S difference = static_cast<S>(others[t][i]) - static_cast<S>(own[i]);
            volatile S product = static_cast<S>(list[t].weight) * difference;
            sum = t == 0 ? product : sum + product;
          }
          expected[i] = x[i] + sum;
          alone[i] = sum;
        }
        Placed<S> out(count, terms);
        combine_around(dtype_of<Q>, out.data(), x.data(), own.data(), list, count);
        ASSERT_TRUE(same_blocks(out.values(), expected)) << terms;
        ASSERT_TRUE(out.guards_stand());
        Placed<S> in_place(x, 3);
        combine_around(dtype_of<Q>, in_place.data(), in_place.data(), own.data(), list, count);
        ASSERT_TRUE(same_blocks(in_place.values(), expected)) << terms;
        combine_around(dtype_of<Q>, out.data(), nullptr, own.data(), list, count);
        ASSERT_TRUE(same_blocks(out.values(), alone)) << terms;
      }
  });
}

// A ring of 8 ranks with weights 1/3 mixes 300 times with 16-bit messages. The mean stays, and every rank
// comes as close to it as the messages' precision allows; mixing the rounded values themselves would move the
// mean much further.
TEST_P(CombineAroundTest, KeepsTheMeanOfTheFlock) {
  constexpr std::size_t kRanks = 8;
  constexpr std::size_t kCount = 257;
  for (const DType message : {DType::float16, DType::bfloat16}) {
    std::vector<std::vector<float>> x;
    Random random(5, 0, 0);
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      x.emplace_back(kCount);
      for (float& value : x.back()) value = static_cast<float>(1 + random.uniform());
    }
    const auto mean = [&](std::size_t i) {
      return std::accumulate(x.begin(), x.end(), 0.0,
                             [&](double sum, const auto& block) { return sum + block[i]; }) /
             kRanks;
    };
    std::vector<double> before(kCount);
    for (std::size_t i = 0; i < kCount; ++i) before[i] = mean(i);
    std::vector<std::vector<std::uint16_t>> told(kRanks, std::vector<std::uint16_t>(kCount));
    for (int round = 0; round < 300; ++round) {
      for (std::size_t rank = 0; rank < kRanks; ++rank)
        convert(DType::float32, x[rank].data(), message, told[rank].data(), kCount);
      for (std::size_t rank = 0; rank < kRanks; ++rank) {
        const Term terms[] = {{told[(rank + 1) % kRanks].data(), 1.0 / 3},
                              {told[(rank + kRanks - 1) % kRanks].data(), 1.0 / 3}};
        combine_around(message, x[rank].data(), x[rank].data(), told[rank].data(), terms, kCount);
      }
    }
    const double unit = message == DType::float16 ? std::ldexp(1.0, -10) : std::ldexp(1.0, -7);
    for (std::size_t i = 0; i < kCount; ++i) {
      EXPECT_NEAR(mean(i), before[i], 300 * std::ldexp(1.0, -24))
          << i;  // at worst one last rounding per round, far below `unit`
      for (std::size_t rank = 0; rank < kRanks; ++rank) EXPECT_NEAR(x[rank][i], before[i], 4 * unit) << i;
    }
  }
}

TEST(CombineAroundErrorTest, OtherMessagesAreRefusedByName) {
  float x = 1;
  for (const DType dtype : {DType::int64, DType::int8})
    EXPECT_THAT([&] { combine_around(dtype, &x, &x, &x, {}, 1); },
                testing::ThrowsMessage<InvalidArgument>(testing::HasSubstr(name(dtype))));
}

}  // namespace
}  // namespace starling::kernel
