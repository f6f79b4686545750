#include "starling/train/sampler.h"

#include <gtest/gtest.h>
#include <set>
#include <torch/data.h>

#include "train/trained.h"

namespace starling::train {
namespace {

using Numbers = torch::data::datasets::TensorDataset;

// The samples of each rank's loader in two passes, in order.
std::vector<double> loaded(const Flock& flock, std::int64_t count, std::size_t batch) {
  auto data = Numbers(torch::arange(count, torch::kFloat64))
                  .map(torch::data::transforms::Stack<torch::data::TensorExample>());
  auto loader = torch::data::make_data_loader(
      std::move(data), FlockSampler(flock, static_cast<std::size_t>(count), {.seed = 5}),
      torch::data::DataLoaderOptions(batch));
  std::vector<double> all;
  for (int epoch = 0; epoch < 2; ++epoch)
    for (const auto& examples : *loader)
      for (std::int64_t i = 0; i < examples.data.numel(); ++i) all.push_back(examples.data[i].item<double>());
  return all;
}

TEST(FlockSampler, SplitsADataLoadersSamples) {
  on_ranks(3, [](Flock& flock) {
    const std::vector<double> own = loaded(flock, 30, 4);
    require(own.size() == 20, "two epochs of ten samples");
    const std::vector<double> first(own.begin(), own.begin() + 10);
    const std::vector<double> second(own.begin() + 10, own.end());
    require(first != second, "shuffled anew");
    require(std::set(first.begin(), first.end()) == std::set(second.begin(), second.end()),
            "the same samples");
    const auto all = flock.allgather(first, "samples");
    require(std::set(all.begin(), all.end()).size() == 30, "every sample");
  });
}

TEST(FlockSampler, ContinuesWhereItWasSaved) {
  on_ranks(2, [](Flock& flock) {
    FlockSampler one(flock, 20, {.seed = 1});
    one.set_epoch(3);
    one.reset();
    one.next(4);
    torch::serialize::OutputArchive out;
    one.save(out);
    std::stringstream text;
    out.save_to(text);
    torch::serialize::InputArchive in;
    in.load_from(text);
    FlockSampler other(flock, 20, {.seed = 1});
    other.load(in);
    require(one.next(6).value() == other.next(6).value(), "the rest of the epoch");
    require(!other.next(1).has_value(), "its end");
    one.reset();
    other.reset();
    require(one.next(10).value() == other.next(10).value(), "the next epoch");
  });
}

TEST(FlockSampler, RejectsRanksThatSplitDifferently) {
  on_ranks(3, [](Flock& flock) {
    const bool last = flock.rank() == 2;
    const auto told = [&](std::size_t count, const SplitOptions& options) {
      return message_of<InvalidArgument>([&] { FlockSampler(flock, count, options); });
    };
    const std::string start = "FlockSampler: the ranks do not split the same data: ";
    require(told(30, {.seed = last ? 6U : 5U}) == start + "seed: 5 on rank 0, 6 on rank 2", "seeds");
    require(told(last ? 31 : 30, {}) == start + "samples: 30 on rank 0, 31 on rank 2", "lengths");
    require(told(30, {.partition = last ? "contiguous" : "iid"}) ==
                start + "partition: iid on rank 0, contiguous on rank 2",
            "partitions");
    const std::vector<std::uint8_t> labels = {0, 1, 0, 1, 0, static_cast<std::uint8_t>(last ? 0 : 1)};
    require(
        message_of<InvalidArgument>([&] { FlockSampler(flock, labels); }).find("labels") != std::string::npos,
        "labels");
    FlockSampler(flock, 30, {.seed = 7});
  });
}

}  // namespace
}  // namespace starling::train
