#include <fstream>
#include <gtest/gtest.h>
#include <malloc.h>

#include "train/trained.h"

// Tests how much memory a worker uses beyond plain training.
namespace starling::train {
namespace {

struct Resident {
  double anonymous = 0;
  double shared = 0;
};
Resident resident() {
  Resident bytes;
  std::ifstream in("/proc/self/status");
  for (std::string line; std::getline(in, line);) {
    const auto kilobytes = [&](const std::string& key) {
      return line.rfind(key, 0) == 0 ? std::stod(line.substr(key.size())) * 1024 : 0;
    };
    bytes.anonymous += kilobytes("RssAnon:");
    bytes.shared += kilobytes("RssShmem:");
  }
  return bytes;
}

constexpr std::int64_t kWidth = 2048;
constexpr double kParameters = 4.0 * kWidth * kWidth;  // bytes

// Copies of the parameters that the Trainer and the fabric add to plain training, for two workers.
double extra_copies(Flock& flock, const std::string& optimizer, const TrainerOptions& options) {
  mallopt(M_MMAP_THRESHOLD, 1 << 20);  // freed memory is returned to the system, so that it can be measured
  torch::nn::Linear layer(torch::nn::LinearOptions(kWidth, kWidth).bias(false));
  const auto step = [&](const auto& zero, const auto& end) {
    for (int k = 0; k < 6; ++k) {
      zero();
      layer->forward(torch::ones({1, kWidth})).mean().backward();
      end();
    }
  };
  Resident alone;
  {
    const OptimizerPtr local = local_optimizer(optimizer).make(layer->parameters());
    step([&] { local->zero_grad(); }, [&] { local->step(); });
    alone = resident();
  }
  const OptimizerPtr local = local_optimizer(optimizer).make(layer->parameters());
  Trainer trainer(flock, *layer, *local, options);
  step([&] { trainer.zero_grad(); }, [&] { trainer.step(); });
  flock.barrier();
  const Resident together = resident();
  // Both workers map the outgoing memory of both.
  return (together.anonymous - alone.anonymous + (together.shared - alone.shared) / 2) / kParameters;
}

// A sanitizer's own memory would exceed what is measured here.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kMeasurable = false;
#else
constexpr bool kMeasurable = true;
#endif

void expect_at_most(double copies, const std::string& optimizer, const TrainerOptions& options) {
  on_ranks(
      2,
      [&](Flock& flock) {
        const double extra = extra_copies(flock, optimizer, options);
        require(extra <= copies + 0.15, fmt::format("{} with {}: {:.2f} extra copies of the parameters",
                                                    options.method, optimizer, extra));
        require(extra > 0.5, fmt::format("measured {:.2f}: not what this test means to measure", extra));
      },
      "local_processes");
}

TEST(TrainerMemory, DsgdAddsAtMostTwoCopiesOfTheParameters) {
  if (!kMeasurable) GTEST_SKIP() << "under a sanitizer";
  for (const char* optimizer : {"sgd", "momentum", "adam"}) {
    expect_at_most(2, optimizer, {.method = "dsgd-awc"});
    expect_at_most(2, optimizer, {.method = "dsgd-atc"});
  }
  expect_at_most(2, "momentum", {.method = "dsgd-awc", .eager = true});
  expect_at_most(2, "rmsprop", {.method = "dsgd-awc"});
}

TEST(TrainerMemory, AccumAdamAddsAtMostThreeCopies) {
  if (!kMeasurable) GTEST_SKIP() << "under a sanitizer";
  expect_at_most(3, "adam", {.method = "accum-adam(s=4)"});
  expect_at_most(3, "adamw", {.method = "accum-adamw(s=4)"});
}

}  // namespace
}  // namespace starling::train
