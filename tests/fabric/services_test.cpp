#include "starling/fabric/services.h"

#include <atomic>
#include <cstring>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include "fabric/harness.h"
#include "starling/base/error.h"
#include "starling/fabric/faulty/faulty.h"

// What ranks ask of each other where they share no memory.

namespace starling {
namespace {

using namespace std::chrono_literals;

void demand(bool condition, const std::string& what) {
  if (!condition) throw Error(what);
}

Deadline within(std::chrono::milliseconds time) {
  return std::chrono::steady_clock::now() + time;
}

Outgoing packed(Fabric& fabric, const std::vector<std::uint64_t>& words) {
  Outgoing message = fabric.reserve(words.size() * sizeof(std::uint64_t));
  std::memcpy(message.bytes().data(), words.data(), message.bytes().size());
  return message;
}

std::uint64_t first_word(std::span<const std::byte> bytes) {
  std::uint64_t word = 0;
  std::memcpy(&word, bytes.data(), sizeof(word));
  return word;
}

// One word to everybody, and everybody's.
std::vector<std::uint64_t> exchanged(Fabric& fabric, std::uint64_t word) {
  std::vector<std::uint64_t> all(static_cast<std::size_t>(fabric.size()), word);
  for (Rank r = 0; r < fabric.size(); ++r)
    if (r != fabric.rank()) fabric.post(packed(fabric, {word}), {}, r);
  for (Rank r = 0; r < fabric.size(); ++r)
    while (r != fabric.rank()) {
      const std::uint32_t ticket = fabric.ticket();
      if (const auto arrival = fabric.poll(r)) {
        all[static_cast<std::size_t>(r)] = first_word(arrival->bytes());
        break;
      }
      fabric.sleep(ticket, {&r, 1}, within(50ms));
    }
  return all;
}

class ServicesTest : public testing::TestWithParam<Launch> {
 protected:
  void SetUp() override {
    if (GetParam().launcher->shares) GTEST_SKIP() << "who shares memory needs no services";
  }
  void run(const RankBody& body) const {
    const auto ends = GetParam().launcher->run(GetParam().size, body);
    for (std::size_t r = 0; r < ends.size(); ++r)
      EXPECT_TRUE(ends[r].ok) << "rank " << r << ": " << ends[r].message;
  }
};

TEST_P(ServicesTest, HearWhatIsToldInOrderAndAnswer) {
  run([](const std::shared_ptr<Fabric>& plain) {
    const auto fabric = make_faulty(plain, {});  // which passes them on
    Services& services = *fabric->services();
    std::vector<std::atomic<std::uint64_t>> heard(static_cast<std::size_t>(fabric->size()));
    // Told k: the k-th of its sender, of any length. Asked: how many there were.
    const std::uint64_t mine = services.serve([&](Rank from, std::span<const std::byte> said) {
      auto& count = heard[static_cast<std::size_t>(from)];
      if (first_word(said) == count) ++count;
      return packed(*fabric, {count, static_cast<std::uint64_t>(from)});
    });
    const auto numbers = exchanged(*fabric, mine);
    for (std::uint64_t k = 0; k < 50; ++k)
      for (Rank to = 0; to < fabric->size(); ++to) {
        if (to == fabric->rank()) continue;
        std::vector<std::uint64_t> words(k % 7 == 0 ? 50'000 : 1, k);
        services.tell(packed(*fabric, words), numbers[static_cast<std::size_t>(to)], to);
      }
    for (Rank to = 0; to < fabric->size(); ++to) {
      if (to == fabric->rank()) continue;
      const auto answer =
          services.ask(packed(*fabric, {~0ULL}), numbers[static_cast<std::size_t>(to)], to, within(30s));
      demand(answer && answer->bytes().size() == 16 && first_word(answer->bytes()) == 50, "answer");
    }
    exchanged(*fabric, 0);
    services.end(mine);
    exchanged(*fabric, 0);
    for (Rank to = 0; to < fabric->size(); ++to)
      if (to != fabric->rank())
        demand(
            !services.ask(packed(*fabric, {0}), numbers[static_cast<std::size_t>(to)], to, Deadline::max()),
            "an answer of a service that has ended");
    exchanged(*fabric, 0);
  });
}

INSTANTIATE_TEST_SUITE_P(Fabrics, ServicesTest, testing::ValuesIn(launches({1, 2, 3, 5}, false)),
                         launch_name);

class ServicesMishapTest : public ServicesTest {};

TEST_P(ServicesMishapTest, TheStoppedAndTheDeadAreNotWaitedForForever) {
  const auto ends = GetParam().launcher->run(2, [](const std::shared_ptr<Fabric>& fabric) {
    Services& services = *fabric->services();
    const std::uint64_t mine =
        services.serve([&](Rank, std::span<const std::byte>) { return packed(*fabric, {7}); });
    const auto numbers = exchanged(*fabric, mine);
    const auto pids = exchanged(*fabric, static_cast<std::uint64_t>(getpid()));
    if (fabric->rank() == 1) {
      while (fabric->alive(0)) usleep(1000);
      return;
    }
    const auto victim = static_cast<pid_t>(pids[1]);
    const auto ask = [&](std::chrono::milliseconds patience) {
      return services.ask(packed(*fabric, {0}), numbers[1], 1, within(patience)).has_value();
    };
    demand(ask(30s), "no answer of the living");
    {
      const Stopped stopped(victim);
      demand(!ask(100ms), "an answer of the stopped");
      // So much that it would only pile up, and no more.
      int told = 0;
      for (; told < 1000 && services.await_room(1, within(20ms)); ++told)
        services.tell(packed(*fabric, std::vector<std::uint64_t>(1 << 17)), numbers[1], 1);
      demand(told > 4 && told < 100, "room for " + std::to_string(told) + " MiB");
    }
    demand(services.await_room(1, within(30s)) && ask(30s), "no answer of who went on");
    const Stopped stopped(victim);
    if (fork() == 0) {
      usleep(100'000);
      kill(victim, SIGKILL);
      _exit(0);
    }
    const auto before = std::chrono::steady_clock::now();
    demand(!ask(30s) && !fabric->alive(1), "an answer of the dead");
    demand(std::chrono::steady_clock::now() - before < 20s, "waited for the dead");
  });
  EXPECT_TRUE(ends[0].ok) << ends[0].message;
}

INSTANTIATE_TEST_SUITE_P(Fabrics, ServicesMishapTest, testing::ValuesIn(launches({2}, true)), launch_name);

}  // namespace
}  // namespace starling
