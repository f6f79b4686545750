// LeNet on MNIST, written for one process; the three lines marked with (*) make it decentralized.
//
//   build/release/bin/starling run -n 4 -- build/release/bin/example_mnist
//
// Arguments: another data set (synthetic needs no files), the number of epochs, and a folder for checkpoints,
// from which a run that was killed resumes.
#include <cstdio>
#include <cstdlib>
#include <starling/data.h>
#include <starling/starling.h>

struct Net : torch::nn::Module {
  torch::nn::Conv2d conv1{torch::nn::Conv2dOptions(1, 6, 5).padding(2)},
      conv2{torch::nn::Conv2dOptions(6, 16, 5)};
  torch::nn::Linear fc1{400, 120}, fc2{120, 10};

  Net() {
    register_module("conv1", conv1);
    register_module("conv2", conv2);
    register_module("fc1", fc1);
    register_module("fc2", fc2);
  }
  torch::Tensor forward(const torch::Tensor& images) {
    const auto x = torch::max_pool2d(torch::relu(conv1(images)), 2);
    return fc2(torch::relu(fc1(torch::max_pool2d(torch::relu(conv2(x)), 2).flatten(1))));
  }
};

int main(int argc, char** argv) try {
  const char* name = argc > 1 ? argv[1] : "mnist";
  const int epochs = argc > 2 ? std::atoi(argv[2]) : 1;
  const std::string checkpoints = argc > 3 ? argv[3] : "";
  torch::manual_seed(1);
  torch::set_num_threads(1);
  const auto data = starling::load(name, starling::Split::train);
  const auto test = starling::load(name, starling::Split::test);

  auto flock = starling::join();  // (*) a flock of one without a launcher
  Net net;
  torch::optim::SGD sgd(net.parameters(), torch::optim::SGDOptions(0.02).momentum(0.9));
  starling::Trainer trainer(flock, net, sgd, {.topology = "one-peer-exponential"});  // (*)

  // Every worker has its own part of the images.
  const auto shards = starling::iid_partition(data.size(), flock.size(), 1);
  starling::ShardSampler sampler(shards[static_cast<std::size_t>(flock.rank())], flock.rank(), 1);
  int first = 0;
  if (!checkpoints.empty())
    if (const auto resumed = trainer.resume(checkpoints))
      first = static_cast<int>(resumed->extra.at("epoch").toInt());
  for (int epoch = first; epoch < epochs; ++epoch) {
    trainer.begin_epoch(static_cast<std::int64_t>(sampler.batches(32)));
    sampler.start(epoch);
    for (auto samples = sampler.next(32); !samples.empty(); samples = sampler.next(32)) {
      const auto [images, labels] = starling::make_batch(data, samples);
      trainer.zero_grad();
      torch::nn::functional::cross_entropy(net.forward(images), labels).backward();
      trainer.step();  // (*) instead of sgd.step()
    }
    trainer.finish_epoch();  // a rank with fewer images skips until the others have finished
    if (!checkpoints.empty()) trainer.save(checkpoints, {.extra = {{"epoch", epoch + 1}}});

    const torch::NoGradGuard no_grad;
    const double distance = trainer.consensus_distance();
    const auto mean_model = trainer.global_average();  // until the end of this scope
    std::int64_t right = 0;
    for (std::uint32_t i = 0; i < test.size(); i += 500) {
      std::vector<std::uint32_t> samples;
      for (std::uint32_t k = i; k < std::min<std::size_t>(i + 500, test.size()); ++k) samples.push_back(k);
      const auto [images, labels] = starling::make_batch(test, samples);
      right += net.forward(images).argmax(1).eq(labels).sum().item<std::int64_t>();
    }
    if (flock.rank() == 0)
      std::printf("epoch %d: %.2f %% of the test images are right; the models are %.3f apart\n", epoch + 1,
                  100.0 * static_cast<double>(right) / static_cast<double>(test.size()), distance);
  }
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
