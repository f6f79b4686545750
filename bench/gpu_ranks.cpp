#include <algorithm>
#include <array>
#include <fmt/format.h>

#include "bench/gpu_cases.h"
#include "bench/gpu_rank.h"
#include "bench/ranks.h"
#include "starling/fabric/device_messages.h"
#include "starling/flock/byte_operations.h"
#include "starling/kernel/flag.h"
#include "starling/kernel/update.h"
#include "starling/launch/environment.h"
#include "starling/method/drive.h"
#include "starling/method/flock_channel.h"
#include "starling/method/registry.h"

// Operations of several processes on one GPU, each round beside the limit for the same processes.

namespace starling::bench {
namespace {

using kernel::Arithmetic;
using kernel::OwnedBuffer;
using kernel::Term;

method::Driver drive_in_buckets(const Flock& flock, Buffer x, Buffer gradient, std::size_t buckets) {
  const method::MethodPtr method = method::make_method("dsgd-awc");
  const method::Optimizer optimizer = method::parse_optimizer("momentum");
  const auto hypers = std::make_shared<std::vector<method::Hyper>>(1, optimizer.hyper);
  method::ChannelOptions channel;
  channel.schedule = method::schedule_for(flock, *method, "one-peer-exponential", 0);
  std::vector<std::unique_ptr<method::Block>> blocks;
  for (std::size_t i = 0; i < buckets; ++i) {
    const std::size_t begin = x.count * i / buckets, count = x.count * (i + 1) / buckets - begin;
    const std::string name = fmt::format("bucket {}", i);
    blocks.push_back(method::make_block(name, x.part(begin, count), gradient.part(begin, count), *method,
                                        optimizer, hypers, method::make_flock_channel(flock, name, channel)));
  }
  return {method, std::move(blocks)};
}

/// The work of one rank of a case: for each round, the seconds of its limit and its own.
using RankRounds =
    std::function<std::vector<double>(Rank rank, const std::function<void()>& meet, const GpuSettings&)>;

// For every round, `seconds` of the slowest rank's limit and time.
std::vector<GpuRound> measure_ranks(Rank ranks, const GpuSettings& settings, const RankRounds& body,
                                    const std::function<GpuRound(double limit, double own)>& round) {
  const std::vector<double> all = slowest(
      run_ranks(ranks, static_cast<std::size_t>(2 * settings.rounds), kGpuLimit,
                [&](int rank, const std::function<void()>& meet) { return body(rank, meet, settings); }));
  std::vector<GpuRound> rounds;
  for (std::size_t i = 0; i < all.size(); i += 2) rounds.push_back(round(all[i], all[i + 1]));
  return rounds;
}

// Alternates the two. In the result the limit's seconds come first, whichever was measured first.
std::vector<double> in_turns(const GpuSettings& settings, const std::function<void()>& meet,
                             const std::function<double()>& limit, const std::function<double()>& own) {
  std::vector<double> seconds;
  for (int round = 0; round < settings.rounds; ++round) {
    std::array<double, 2> both{};
    for (const int turn : {round % 2, 1 - round % 2}) {
      kernel::device().synchronize();
      meet();
      both[static_cast<std::size_t>(turn)] = turn == 0 ? limit() : own();
    }
    meet();
    seconds.insert(seconds.end(), both.begin(), both.end());
  }
  return seconds;
}

GpuRound times_of_limit(double limit, double own) {
  return {own, own / limit};
}

// A step, and the local optimizer alone, on all ranks at the same time.
GpuCase step_case(Rank ranks) {
  GpuCase made{.name = "step without computing",
               .ranks = ranks,
               .of = "the momentum pass alone",
               .unit = GpuCase::Unit::times,
               .bar = 1.45};
  made.measure = [ranks](const GpuSettings& all) {
    const auto body = [ranks, job = launch::random_token()](Rank rank, const auto& meet,
                                                            const GpuSettings& settings) {
      GpuTraining training(job, rank, ranks, settings.elements);
      const OwnedBuffer x = on_gpu(settings.elements), m = on_gpu(settings.elements);
      const Term from[] = {{ConstBuffer(x.buffer()), 1}};
      const auto alone = [&] {
        kernel::device().arithmetic().sgd_update(
            {.from = from, .gradient = training.gradient.buffer(), .x = x.buffer()}, {.momentum = 0.9},
            m.buffer(), false);
      };
      const auto step = [&] { training.step(); };
      for (int i = 0; i < 4; ++i) step(), alone();
      return in_turns(
          settings, meet, [&] { return seconds_each(settings.repeats(20), alone); },
          [&] { return seconds_each(settings.repeats(20), step); });
    };
    return measure_ranks(ranks, all, body, times_of_limit);
  };
  return made;
}

// How long step() occupies the host, for each of 8 buckets: in total, and without waiting for other ranks.
GpuCase host_case() {
  GpuCase made{
      .name = "host's part of a step, a bucket", .ranks = 2, .unit = GpuCase::Unit::seconds, .bar = 50e-6};
  made.measure = [](const GpuSettings& all) {
    const auto body = [job = launch::random_token()](Rank rank, const auto& meet,
                                                     const GpuSettings& settings) {
      constexpr std::size_t kBuckets = 8;
      constexpr int kSteps = 10;  // few enough for the driver's limit on enqueued work
      GpuTraining training(job, rank, 2, settings.elements, kBuckets);
      for (int i = 0; i < 4; ++i) training.step();
      std::vector<double> seconds;
      for (int round = 0; round < settings.rounds; ++round) {
        kernel::device().synchronize();
        meet();
        const double waited = training.driver.waited();
        const double whole = seconds_of([&] {
          for (int i = 0; i < kSteps; ++i) training.step();
        });
        for (const double one : {whole, whole - (training.driver.waited() - waited)})
          seconds.push_back(one / kSteps / kBuckets);
      }
      kernel::device().synchronize();
      meet();
      return seconds;
    };
    return measure_ranks(2, all, body, [](double whole, double own) { return GpuRound{whole, own}; });
  };
  return made;
}

struct alignas(4096) FlagPage {
  struct alignas(64) Line {
    kernel::Flag flag{0};
  };
  std::array<Line, 2> line;
};

/// What any exchange of two ranks on a device does at least: each runs a kernel, signals the other, waits for
/// it, and runs another kernel.
class LeastExchange {
 public:
  LeastExchange(FlagPage& page, Rank rank) : page_(page), rank_(rank) {
    kernel::device().register_flags(&page_, sizeof(FlagPage));
  }
  ~LeastExchange() { kernel::device().unregister_flags(&page_); }
  LeastExchange(const LeastExchange&) = delete;
  LeastExchange& operator=(const LeastExchange&) = delete;

  template <typename Before, typename After>
  void operator()(const Before& before, const After& after) {
    ++number_;
    before();
    kernel::device().write(flag_of(rank_), number_);
    kernel::device().wait(flag_of(1 - rank_), number_);
    after();
  }

 private:
  kernel::Flag& flag_of(Rank rank) { return page_.line[static_cast<std::size_t>(rank)].flag; }

  FlagPage& page_;
  Rank rank_;
  std::uint32_t number_ = 0;
};

void average(const Flock& flock, Buffer x) {
  ByteOperations(flock).neighbor_allreduce({{x, x}}, {}, "average").wait();
}

// An average of 2 ranks moves five times its bytes on each: x to outgoing memory (2), and the sum (3).
GpuCase large_average_case() {
  GpuCase made{
      .name = "neighbor_allreduce 100 MB", .ranks = 2, .of = "its bytes' time", .bar = 0.85, .least = true};
  made.measure = [](const GpuSettings& all) {
    const auto body = [job = launch::random_token()](Rank rank, const auto& meet,
                                                     const GpuSettings& settings) {
      const GpuRank here(job, rank, 2);
      const std::size_t elements = settings.quick ? settings.elements : 25'000'000;
      const OwnedBuffer x = on_gpu(elements), y = on_gpu(elements);
      const auto copy = [&] { kernel::device().arithmetic().copy(y.buffer(), x.buffer()); };
      const auto one = [&] { average(here.flock, x.buffer()); };
      for (int i = 0; i < 4; ++i) one(), copy();
      constexpr double kCopies = 2.5;
      return in_turns(
          settings, meet, [&] { return kCopies * seconds_each(settings.repeats(20), copy); },
          [&] { return seconds_each(settings.repeats(20), one); });
    };
    return measure_ranks(2, all, body, [](double limit, double own) { return GpuRound{own, limit / own}; });
  };
  return made;
}

// The same beside an exchange by hand of as many bytes: processes that share a device take turns, which takes
// time that a copy does not need.
GpuCase large_exchange_case() {
  GpuCase made{.name = "the same, beside one by hand",
               .ranks = 2,
               .of = "a copy, a flag each way, a sum",
               .unit = GpuCase::Unit::times,
               .bar = 1.1};
  made.measure = [](const GpuSettings& all) {
    const Shared<FlagPage> page;
    const auto body = [&page, job = launch::random_token()](Rank rank, const auto& meet,
                                                            const GpuSettings& settings) {
      const GpuRank here(job, rank, 2);
      const std::size_t elements = settings.quick ? settings.elements : 25'000'000;
      const OwnedBuffer x = on_gpu(elements), sent = on_gpu(elements), heard = on_gpu(elements);
      const Term terms[] = {{ConstBuffer(x.buffer()), 0.5}, {ConstBuffer(heard.buffer()), 0.5}};
      const Arithmetic& arithmetic = kernel::device().arithmetic();
      LeastExchange exchange(*page, rank);
      const auto least = [&] {
        exchange([&] { arithmetic.copy(sent.buffer(), x.buffer()); },
                 [&] { arithmetic.combine(x.buffer(), terms); });
      };
      const auto one = [&] { average(here.flock, x.buffer()); };
      for (int i = 0; i < 4; ++i) one(), least();
      std::vector<double> seconds = in_turns(
          settings, meet, [&] { return seconds_each(settings.repeats(20), least); },
          [&] { return seconds_each(settings.repeats(20), one); });
      kernel::device().synchronize();
      return seconds;
    };
    return measure_ranks(2, all, body, times_of_limit);
  };
  return made;
}

GpuCase small_average_case(const std::string& size, std::size_t elements) {
  GpuCase made{.name = "neighbor_allreduce " + size,
               .ranks = 2,
               .of = "two kernels and a flag each way",
               .unit = GpuCase::Unit::times,
               .bar = 2};
  made.measure = [elements](const GpuSettings& all) {
    const Shared<FlagPage> page;
    const auto body = [&page, elements, job = launch::random_token()](Rank rank, const auto& meet,
                                                                      const GpuSettings& settings) {
      const GpuRank here(job, rank, 2);
      kernel::Device& device = kernel::device();
      const OwnedBuffer x = on_gpu(elements), tiny = on_gpu(32);
      LeastExchange exchange(*page, rank);
      const auto least = [&] {
        const auto scale = [&] { device.arithmetic().scale(tiny.buffer(), 0.5); };
        exchange(scale, scale);
        device.synchronize();
      };
      const auto one = [&] {
        average(here.flock, x.buffer());
        device.synchronize();
      };
      for (int i = 0; i < 4; ++i) one(), least();
      return in_turns(
          settings, meet, [&] { return seconds_each(settings.repeats(50), least); },
          [&] { return seconds_each(settings.repeats(50), one); });
    };
    return measure_ranks(2, all, body, times_of_limit);
  };
  return made;
}

// The memory that a training's messages use, in addition to the model.
GpuCase memory_case() {
  GpuCase made{.name = "memory that dsgd-awc adds",
               .ranks = 2,
               .of = "two models",
               .unit = GpuCase::Unit::times,
               .bar = 1.05};
  made.measure = [](const GpuSettings& all) {
    const auto body = [job = launch::random_token()](Rank rank, const auto&, const GpuSettings& settings) {
      GpuTraining training(job, rank, 2, settings.elements);
      std::vector<double> found;
      for (int round = 0; round < settings.rounds; ++round) {
        found.push_back(seconds_each(settings.repeats(10), [&] { training.step(); }));
        const double bytes = static_cast<double>(training.rank.fabric->device_messages()->usage().bytes);
        found.push_back(bytes / (2 * static_cast<double>(training.x.buffer().bytes())));
      }
      return found;
    };
    return measure_ranks(2, all, body, [](double seconds, double share) { return GpuRound{seconds, share}; });
  };
  return made;
}

}  // namespace

GpuTraining::GpuTraining(const std::string& job, Rank number, Rank size, std::size_t elements,
                         std::size_t buckets)
    : rank(job, number, size),
      x(on_gpu(elements)),
      gradient(on_gpu(elements)),
      driver(drive_in_buckets(rank.flock, x.buffer(), gradient.buffer(), buckets)) {}

std::vector<GpuCase> gpu_rank_cases() {
  return {step_case(2),
          step_case(4),
          host_case(),
          small_average_case("1 kB", 256),
          small_average_case("1 MB", 262'144),
          large_average_case(),
          large_exchange_case(),
          memory_case()};
}

}  // namespace starling::bench
