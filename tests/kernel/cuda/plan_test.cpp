#include <array>
#include <gmock/gmock.h>

#include "cuda_test.h"
#include "starling/base/error.h"

// Sums of messages that may still be in flight, or whose sender has died; see plan.cu.

namespace starling::kernel::cuda {
namespace {

constexpr std::uint32_t kMessage = 5;

class PlanTest : public testing::Test {
 protected:
  PlanTest() { test_gpu().register_flags(flags_.data(), sizeof flags_); }
  ~PlanTest() override {
    test_gpu().synchronize();
    test_gpu().unregister_flags(flags_.data());
  }

  /// Creates terms that have flags, except for the own one. If bit t of `missing` is set, the sender of term
  /// t died before its message.
  template <typename T>
  std::vector<Term> flagged(std::vector<Twin<T>>& blocks, std::span<const double> weights, unsigned missing,
                            std::size_t own = 0) {
    std::vector<Term> terms;
    for (std::size_t t = 0; t < weights.size(); ++t) {
      Term& term = terms.emplace_back(ConstBuffer(blocks[t].device()), weights[t]);
      if (t == own) continue;
      // The sender died after its message, or not at all: the term counts.
      flags_[t] = (missing >> t & 1U) != 0 ? (kMessage - 1) | kLost
                  : t % 2 == 0             ? kMessage | kLost
                                           : kMessage;
      term.flag = &flags_[t];
      term.number = kMessage;
    }
    return terms;
  }
  /// Computes the same sum on the host: the own term gets the weights of the missing ones.
  template <typename T>
  std::vector<Term> remaining(std::vector<Twin<T>>& blocks, std::span<const double> weights, unsigned missing,
                              std::size_t own = 0) {
    std::vector<Term> terms;
    std::size_t of_own = 0;
    for (std::size_t t = 0; t < weights.size(); ++t) {
      if (t == own) of_own = terms.size();
      if ((missing >> t & 1U) == 0) terms.emplace_back(ConstBuffer(blocks[t].host()), weights[t]);
    }
    for (std::size_t t = 0; t < weights.size(); ++t)
      if ((missing >> t & 1U) != 0) terms[of_own].weight += weights[t];
    return terms;
  }

  std::array<Flag, 32> flags_{};
  const Arithmetic& host_ = arithmetic_in(MemoryKind::host);
  const Arithmetic& gpu_ = test_gpu().arithmetic();
};

template <typename T>
std::vector<Twin<T>> blocks_of(std::size_t number, std::size_t count, std::uint64_t seed) {
  std::vector<Twin<T>> blocks;
  for (std::size_t i = 0; i < number; ++i)
    blocks.emplace_back(odd_numbers<T>(count, 50 * seed + i), seed % 2 * i % 3);
  return blocks;
}

template <typename T, typename Suite>
void check_missing(Suite& suite) {
  std::uint64_t seed = 0;
  for (const std::size_t n : {2U, 3U, 4U, 5U, 6U, 9U})
    for (const bool equal : {true, false})
      for (unsigned missing = 0; missing < 1U << n; missing += n < 6 ? 1 : 23) {
        const std::size_t own = missing % n;
        if ((missing >> own & 1U) != 0) continue;
        const double share = 1 / static_cast<double>(n);
        std::vector<double> weights(n, equal ? share : share / 2);
        if (!equal) weights[0] = 1 - share / 2 * static_cast<double>(n - 1);
        std::vector<Twin<T>> x = blocks_of<T>(n + 1, 1003, ++seed);
        suite(x, weights, missing, own);
        ASSERT_TRUE(x[n].same()) << n << " terms, missing " << missing << ", own " << own;
      }
}

TEST_F(PlanTest, TheOwnTermGetsTheWeightsOfTheMissing) {
  const auto combine = [&](auto& x, const std::vector<double>& weights, unsigned missing, std::size_t own) {
    host_.combine(x.back().host(), remaining(x, weights, missing, own));
    gpu_.combine(x.back().device(), flagged(x, weights, missing, own));
    test_gpu().synchronize();
  };
  check_missing<float>(combine);
  check_missing<double>(combine);
  check_missing<Half>(combine);
  check_missing<BFloat16>(combine);
}

TEST_F(PlanTest, UpdatesUseTheMessagesThatArrived) {
  const auto update = [&](auto& x, const std::vector<double>& weights, unsigned missing, std::size_t own) {
    // The gradient and the momentum are two of the blocks; they are not compared.
    host_.sgd_update({remaining(x, weights, missing, own), x[1].host(), 0.5, x.back().host()},
                     {.momentum = 0.9}, x[0].host(), false);
    gpu_.sgd_update({flagged(x, weights, missing, own), x[1].device(), 0.5, x.back().device()},
                    {.momentum = 0.9}, x[0].device(), false);
    test_gpu().synchronize();
  };
  check_missing<float>(update);
  check_missing<double>(update);
}

TEST_F(PlanTest, AMissingMessageLeavesNoDifference) {
  std::uint64_t seed = 0;
  for (const std::size_t n : {2U, 3U, 6U})
    for (unsigned missing = 0; missing < 1U << n; missing += 2) {
      std::vector<Twin<BFloat16>> messages = blocks_of<BFloat16>(n, 1003, ++seed);
      std::vector<Twin<float>> x = blocks_of<float>(1, 1003, seed);
      const std::vector<double> weights(n, 0.3);
      std::vector<Term> host;
      for (std::size_t t = 1; t < n; ++t)
        if ((missing >> t & 1U) == 0) host.emplace_back(ConstBuffer(messages[t].host()), weights[t]);
      host_.combine_around(DType::bfloat16, x[0].host(), x[0].host(), {ConstBuffer(messages[0].host()), 0},
                           host);
      const std::vector<Term> device = flagged(messages, weights, missing);
      gpu_.combine_around(DType::bfloat16, x[0].device(), x[0].device(), device[0],
                          std::span(device).subspan(1));
      test_gpu().synchronize();
      ASSERT_TRUE(x[0].same()) << n << " terms, missing " << missing;
    }
}

TEST_F(PlanTest, TheSumWaitsForItsMessages) {
  std::vector<Twin<float>> x = blocks_of<float>(3, 100, 1);
  const double weights[] = {0.5, 0.5};
  const std::vector<Term> terms = flagged(x, weights, 0);
  flags_[1] = kMessage - 1;
  gpu_.combine(x[2].device(), terms);
  host_.combine(x[2].host(), remaining(x, weights, 0));
  let_streams_run();
  EXPECT_FALSE(x[2].same());
  // A flag that the stream has read counts, whatever happens to it afterward.
  flags_[1] = kMessage | kLost;
  test_gpu().synchronize();
  EXPECT_TRUE(x[2].same());
}

// Sums of two streams run in all orders: each keeps the flags that it has read.
TEST_F(PlanTest, EachStreamHasItsOwnPlan) {
  const DeviceContext side{0, new_stream()};
  for (std::uint64_t round = 0; round < 50; ++round) {
    std::vector<Twin<float>> x = blocks_of<float>(3, 100, 2 * round);
    std::vector<Twin<float>> y = blocks_of<float>(3, 100, 2 * round + 1);
    const double weights[] = {0.5, 0.5};
    const std::vector<Term> whole = flagged(x, weights, 0);
    std::vector<Term> part = flagged(y, weights, 0);
    part[1].flag = &flags_[2];
    flags_[2] = kLost;
    gpu_.combine(x[2].device(), whole);
    {
      const DeviceScope scope(side);
      gpu_.combine(y[2].device(), part);
      test_gpu().synchronize();
    }
    test_gpu().synchronize();
    host_.combine(x[2].host(), remaining(x, weights, 0));
    host_.combine(y[2].host(), remaining(y, weights, 2));
    ASSERT_TRUE(x[2].same());
    ASSERT_TRUE(y[2].same());
  }
}

TEST_F(PlanTest, ASumOfLostTermsIsZero) {
  for (const std::size_t n : {1U, 3U, 9U}) {
    std::vector<Twin<float>> x = blocks_of<float>(n + 1, 1003, n);
    const std::vector<double> weights(n, 0.3);
    std::vector<Term> terms = flagged(x, weights, ~0U);
    terms[0].flag = &flags_[0];
    terms[0].number = kMessage;
    flags_[0] = kLost;
    gpu_.combine(x[n].device(), terms);
    test_gpu().synchronize();
    host_.zero(x[n].host());
    EXPECT_TRUE(x[n].same());
  }
}

}  // namespace
}  // namespace starling::kernel::cuda
