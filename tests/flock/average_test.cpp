// Covers averages of equal values: neighbor_average, reduce_all, relay and window of starling/flock.
#include <cmath>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "flock/flock_fixture.h"
#include "flock/reference.h"
#include "starling/flock/relay.h"
#include "starling/flock/window.h"

// The average of equal values is this value, bit for bit, whatever the operation, the weights and the fabric.

namespace starling::flock {
namespace {

class EqualValuesTest : public FlockTest {};

/// The same values on every rank: ordinary numbers, numbers whose threefold overflows, and both zeros.
template <typename E>
std::vector<E> equal_block(std::size_t count) {
  std::vector<E> block = start_block<E>(0, count);
  if (count > 0) block[0] = static_cast<E>(-0.0F);
  return block;
}

template <typename E, typename Average>
void require_unchanged(std::size_t count, const std::string& what, const Average& average) {
  const std::vector<E> before = equal_block<E>(count);
  std::vector<E> x = before;
  for (int step = 0; step < 4; ++step) {
    average(x);
    require(same_bits(x, before), fmt::format("{} of {} in step {}", what, name(dtype_of<E>), step));
  }
}

TEST_P(EqualValuesTest, NeighborAveragesReturnThem) {
  run([](Flock& flock) {
    for (const char* topology : {"ring", "star", "exponential", "complete", "grid", "one-peer-exponential",
                                 "chain(weights=uniform)", "hierarchical(ring,local=3)", "base(k=2)"}) {
      flock.set_schedule(topology);
      for_floating_types([&]<typename E>(std::type_identity<E>) {
        require_unchanged<E>(1003, topology, [&](std::vector<E>& x) { flock.neighbor_allreduce(x); });
      });
    }
    flock.set_schedule("ring");
    require_unchanged<float>((std::size_t{9} << 20) / 4, "a long block",
                             [&](std::vector<float>& x) { flock.neighbor_allreduce(x); });
  });
}

TEST_P(EqualValuesTest, AllReducedAveragesReturnThem) {
  run([](Flock& flock) {
    for (const char* way : {"direct", "ring", "doubling", "halving", "tree"}) {
      flock.set_allreduce(way);
      for_floating_types([&]<typename E>(std::type_identity<E>) {
        for (const std::size_t count : {17U, 20'011U})
          require_unchanged<E>(count, way, [&](std::vector<E>& x) { flock.average(x); });
      });
    }
  });
}

TEST_P(EqualValuesTest, RelaysReturnThem) {
  run([](Flock& flock) {
    for (const Missing missing : {Missing::counts, Missing::own, Missing::reference})
      for (const char* tree : {"chain", "star", "double-binary-trees"})
        for_floating_types([&]<typename E>(std::type_identity<E>) {
          Relay relay =
              flock.relay(tree, fmt::format("{} {} {}", tree, static_cast<int>(missing), name(dtype_of<E>)),
                          {.missing = missing});
          require_unchanged<E>(301, tree, [&](std::vector<E>& x) { relay.average(x); });
        });
  });
}

TEST_P(EqualValuesTest, WindowsReturnThem) {
  run([](Flock& flock) {
    flock.set_schedule("ring");
    for_floating_types([&]<typename E>(std::type_identity<E>) {
      const std::vector<E> before = equal_block<E>(501);
      std::vector<E> x = before;
      Window window = flock.create_window(buffer_of(x), "window of " + std::string(name(dtype_of<E>)), {});
      for (int step = 0; step < 3; ++step) {
        window.put();
        flock.barrier();
        window.update();
        require(same_bits(x, before), name(dtype_of<E>));
        flock.barrier();
      }
      window.free();
    });
  });
}

INSTANTIATE_TEST_SUITE_P(Fabrics, EqualValuesTest, testing::ValuesIn(launches({3, 6}, false)), launch_name);

}  // namespace
}  // namespace starling::flock
