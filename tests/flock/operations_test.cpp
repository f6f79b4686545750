// Covers reduce_all, staged_reduce and broadcast of starling/flock through Flock.
#include <limits>

#include <Eigen/Core>

#include "flock/reference.h"
#include "starling/topology/registry.h"

namespace starling::flock {
namespace {

class OperationsTest : public FlockTest {};

constexpr std::size_t kShortBytes = 32 << 10;  // longer blocks are reduced in slices

/// Reduces every rank's blocks in the order of ranks. Sums of 16-bit types are taken in float32 and rounded
/// once.
template <typename E>
std::vector<E> reduced(Reduction reduction, Rank n, std::size_t count, std::uint64_t round) {
  std::vector<E> result(count);
  for (std::size_t i = 0; i < count; ++i) {
    if constexpr (is_floating_element<E>) {
      using Sum = std::conditional_t<std::is_same_v<E, double>, double, float>;
      Sum sum = static_cast<Sum>(start_element<E>(0, i, round));
      for (Rank r = 1; r < n; ++r) {
        const Sum x = static_cast<Sum>(start_element<E>(r, i, round));
        sum = reduction == Reduction::min   ? std::min(sum, x)
              : reduction == Reduction::max ? std::max(sum, x)
                                            : sum + x;
      }
      result[i] = static_cast<E>(sum);
    } else {
      auto sum = static_cast<std::uint64_t>(start_element<E>(0, i, round));  // wraps around
      auto least = start_element<E>(0, i, round);
      auto most = least;
      for (Rank r = 1; r < n; ++r) {
        const E x = start_element<E>(r, i, round);
        sum += static_cast<std::uint64_t>(x);
        least = std::min(least, x);
        most = std::max(most, x);
      }
      result[i] = reduction == Reduction::min   ? least
                  : reduction == Reduction::max ? most
                                                : static_cast<E>(sum);
    }
  }
  return result;
}

/// Requires equality, or for averages equality within one rounding.
template <typename E>
void require_reduced(Flock& flock, const std::vector<E>& result, Reduction reduction, std::size_t count,
                     std::uint64_t round, const std::string& form) {
  const auto what = fmt::format("{} of {} x {}, {}", name(reduction), count, name(dtype_of<E>), form);
  if (reduction != Reduction::average) {
    require(same_bits(result, reduced<E>(reduction, flock.size(), count, round)), what);
    return;
  }
  Shares shares;
  for (Rank r = 0; r < flock.size(); ++r) shares.emplace_back(r, 1.0 / flock.size());
  require_shares(result, shares, count, round, 0, what);
}

template <typename E>
void check_allreduce(Flock& flock, Reduction reduction, std::size_t count) {
  const std::uint64_t round = count;  // different inputs for each length
  const auto start = start_block<E>(flock.rank(), count, round);
  auto x = start;
  require(&flock.allreduce(x, reduction) == &x, "an lvalue comes back as itself");
  require_reduced(flock, x, reduction, count, round, "lvalue");
  require_same_everywhere(flock, x, fmt::format("{} x {}", count, name(dtype_of<E>)));

  auto temporary = start;
  const E* where = temporary.data();
  const auto moved = flock.allreduce(std::move(temporary), reduction);
  require(moved.data() == where && same_bits(moved, x), "allreduce of a temporary");
  auto through_pointer = start;
  flock.allreduce(through_pointer.data(), count, reduction);
  require(same_bits(through_pointer, x), "allreduce through a pointer");
  std::vector<E> out(count);
  flock.allreduce_nonblocking(start, out, reduction).wait();
  require(same_bits(out, x), "allreduce out of place");
  auto in_place = start;
  flock.allreduce_nonblocking(in_place, in_place, reduction).wait();
  require(same_bits(in_place, x), "nonblocking allreduce in place");

  const std::size_t n = static_cast<std::size_t>(flock.size());
  const std::size_t r = static_cast<std::size_t>(flock.rank());
  const std::vector<E> part(x.data() + count * r / n, x.data() + count * (r + 1) / n);
  require(same_bits(flock.reduce_scatter(start, reduction), part), "reduce_scatter is a part of allreduce");
  std::vector<E> later(5);
  flock.reduce_scatter_nonblocking(start, later, reduction).wait();
  require(same_bits(later, part), "nonblocking reduce_scatter");
}

TEST_P(OperationsTest, AllreduceAndReduceScatterOfFloatingTypes) {
  run([](Flock& flock) {
    for_floating_types([&]<typename E>(std::type_identity<E>) {
      std::vector<std::size_t> counts = {0, 17, kShortBytes / sizeof(E), kShortBytes / sizeof(E) + 1};
      // With many ranks these lengths would take long
      if (flock.size() < 8) counts.insert(counts.end(), {1, 3, 1000});
      for (const Reduction reduction : {Reduction::sum, Reduction::min, Reduction::max})
        for (const std::size_t count : counts) check_allreduce<E>(flock, reduction, count);
    });
    check_allreduce<float>(flock, Reduction::sum, 100'003);
  });
}

TEST_P(OperationsTest, AllreduceAndReduceScatterOfIntegers) {
  run([](Flock& flock) {
    for_integer_types([&]<typename E>(std::type_identity<E>) {
      for (const Reduction reduction : {Reduction::sum, Reduction::min, Reduction::max})
        for (const std::size_t count :
             {std::size_t{0}, std::size_t{1}, std::size_t{17}, kShortBytes / sizeof(E) + 3})
          check_allreduce<E>(flock, reduction, count);
    });
  });
}

TEST_P(OperationsTest, AveragesOfFloat64AndFloat32) {
  run([](Flock& flock) {
    for (const std::size_t count : {0U, 1U, 17U, 1000U, 9000U}) {
      check_allreduce<double>(flock, Reduction::average, count);
      check_allreduce<float>(flock, Reduction::average, count);
    }
    auto x = start_block<float>(flock.rank(), 50);
    auto y = x;
    require(same_bits(flock.average(x), flock.allreduce(y, Reduction::average)), "average");
    require(same_bits(flock.average(start_block<float>(flock.rank(), 50)), x), "average of a temporary");
  });
}

// Sum and division in float32, followed by the only rounding.
TEST_P(OperationsTest, AveragesOfShortTypesAreRoundedOnce) {
  run([](Flock& flock) {
    for (const std::size_t count : {1U, 17U, 1000U, 20'000U}) {
      check_allreduce<Half>(flock, Reduction::average, count);
      check_allreduce<BFloat16>(flock, Reduction::average, count);
    }
  });
}

TEST_P(OperationsTest, AnAverageOfLargeNumbersDoesNotOverflow) {
  run([](Flock& flock) {
    std::vector<Half> large(3, Half(60'000.0F));
    flock.average(large);
    for (const Half value : large)
      require(std::abs(static_cast<float>(value) - 60'000.0F) <= 32,
              fmt::format("{}", static_cast<float>(value)));
  });
}

TEST_P(OperationsTest, MinimaAndMaximaOfNansAndZeros) {
  run([](Flock& flock) {
    const bool last = flock.rank() == flock.size() - 1;
    const float nan = std::numeric_limits<float>::quiet_NaN();
    std::vector<float> x = {last ? nan : 1.0F, last ? -0.0F : 0.0F};
    auto most = x;
    flock.allreduce(x, Reduction::min);
    flock.allreduce(most, Reduction::max);
    require(std::isnan(x[0]) && std::isnan(most[0]), "a NaN was lost");
    require(std::signbit(x[1]), "-0 is the least");
    require(std::signbit(most[1]) == (flock.size() == 1), "+0 is the most");
  });
}

TEST_P(OperationsTest, GroupsAreReducedAsOne) {
  run([](Flock& flock) {
    // Short tensors, and long ones reduced in slices whose borders lie inside of tensors.
    for (const std::size_t large : {20U, 20'000U})
      for_all_types([&]<typename E>(std::type_identity<E>) {
        std::vector<std::vector<E>> tensors;
        const std::vector<std::size_t> counts = {3, 0, large, 1, large / 2 + 1};
        for (std::size_t t = 0; t < counts.size(); ++t)
          tensors.push_back(start_block<E>(flock.rank(), counts[t], t + 1));
        flock.allreduce_group(tensors);
        for (std::size_t t = 0; t < counts.size(); ++t)
          require(same_bits(tensors[t], reduced<E>(Reduction::sum, flock.size(), counts[t], t + 1)),
                  fmt::format("tensor {} of {}", t, name(dtype_of<E>)));
      });
    std::vector<std::vector<float>> tensors = {start_block<float>(flock.rank(), 10, 1),
                                               start_block<float>(flock.rank(), 10'001, 2)};
    flock.allreduce_group(tensors, Reduction::average);
    require_reduced(flock, tensors[0], Reduction::average, 10, 1, "group");
    require_reduced(flock, tensors[1], Reduction::average, 10'001, 2, "group");
  });
}

TEST_P(OperationsTest, Broadcasts) {
  run([](Flock& flock) {
    std::uint64_t round = 0;
    for (Rank root = 0; root < flock.size(); root += std::max(1, flock.size() / 3))
      for_all_types([&]<typename E>(std::type_identity<E>) {
        for (const std::size_t count : {0U, 1U, 17U, 10'001U}) {
          ++round;
          const auto expected = start_block<E>(root, count, round);
          const auto mine = start_block<E>(flock.rank(), count, round);
          auto x = mine;
          require(&flock.broadcast(x, root) == &x, "an lvalue comes back as itself");
          require(same_bits(x, expected), "broadcast");
          require(same_bits(flock.broadcast(std::vector<E>(mine), root), expected), "of a temporary");
          auto through_pointer = mine;
          flock.broadcast(through_pointer.data(), count, root);
          require(same_bits(through_pointer, expected), "through a pointer");
          auto later = mine;
          flock.broadcast_nonblocking(later, root).wait();
          require(same_bits(later, expected), "nonblocking");
        }
      });
    for (Rank root = 0; root < flock.size(); ++root) {
      auto bytes = start_block<std::uint8_t>(flock.rank(), 3, 1);
      auto doubles = start_block<double>(flock.rank(), 1001, 2);
      auto halves = start_block<Half>(flock.rank(), 5, 3);
      flock.broadcast_group(std::vector{buffer_of(bytes), buffer_of(doubles), buffer_of(halves)}, root);
      require(same_bits(bytes, start_block<std::uint8_t>(root, 3, 1)) &&
                  same_bits(doubles, start_block<double>(root, 1001, 2)) &&
                  same_bits(halves, start_block<Half>(root, 5, 3)),
              "broadcast_group");
    }
  });
}

TEST_P(OperationsTest, EigenVectorsGoInAsTheyAre) {
  run([](Flock& flock) {
    const SchedulePtr schedule = make_schedule("exponential", flock.size());
    const auto start = start_block<float>(flock.rank(), 23);
    const Eigen::VectorXf constant = Eigen::Map<const Eigen::VectorXf>(start.data(), 23);
    const auto values = [](const Eigen::VectorXf& x) {
      return std::vector<float>(x.data(), x.data() + x.size());
    };
    Eigen::VectorXf x = constant;
    flock.neighbor_allreduce(x);
    require_step(*schedule, 0, flock.rank(), values(x), 23, 0, "lvalue");
    Eigen::VectorXf moved = flock.neighbor_allreduce(Eigen::VectorXf(constant));
    require_step(*schedule, 1, flock.rank(), values(moved), 23, 0, "temporary");
    const Eigen::VectorXf changed = flock.neighbor_allreduce(constant);
    require_step(*schedule, 2, flock.rank(), values(changed), 23, 0, "constant");
    Eigen::VectorXf out(23);
    flock.neighbor_allreduce(constant, out);
    require_step(*schedule, 3, flock.rank(), values(out), 23, 0, "out of place");
    require(same_bits(values(constant), start), "a constant was changed");
    x = constant;
    flock.allreduce(x);
    require(same_bits(values(x), reduced<float>(Reduction::sum, flock.size(), 23, 0)), "allreduce");
    x = constant;
    flock.broadcast(x, flock.size() - 1);
    require(same_bits(values(x), start_block<float>(flock.size() - 1, 23)), "broadcast");
    require(flock.allgather(constant).size() == 23 * static_cast<std::size_t>(flock.size()), "allgather");
  });
}

TEST_P(OperationsTest, AConstantViewOfEigenIsNotWrittenThrough) {
  run([](Flock& flock) {
    auto memory = start_block<float>(flock.rank(), 9);
    const Eigen::Map<Eigen::VectorXf> view(memory.data(), 9);
    const auto changed = flock.neighbor_allreduce(view);
    require(same_bits(memory, start_block<float>(flock.rank(), 9)), "a constant was changed");
    require_step(*make_schedule("exponential", flock.size()), 0, flock.rank(),
                 std::vector<float>(changed.data(), changed.data() + changed.size()), 9, 0, "view");
  });
}

INSTANTIATE_TEST_SUITE_P(Fabrics, OperationsTest, testing::ValuesIn(launches({1, 2, 3, 5, 8}, false)),
                         launch_name);

}  // namespace
}  // namespace starling::flock
