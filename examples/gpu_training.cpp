// Every rank trains on a GPU of its host, or on the CPU if there is none. Models, averages and updates stay
// on the GPU (docs/gpu.md); ranks may share one.
//
//   starling run -n 4 -- build/release/bin/example_gpu_training
#include <iostream>
#include <starling/starling.h>
#include <torch/torch.h>

int main() {
  auto flock = starling::join();
  const auto gpus = static_cast<int>(torch::cuda::device_count());
  const torch::Device device =
      gpus > 0 ? torch::Device(torch::kCUDA, static_cast<c10::DeviceIndex>(flock.local_rank() % gpus))
               : torch::Device(torch::kCPU);

  torch::manual_seed(1);
  torch::nn::Sequential net(torch::nn::Linear(16, 64), torch::nn::Tanh(), torch::nn::Linear(64, 1));
  net->to(device);  // before the trainer is made
  torch::optim::AdamW adamw(net->parameters(), torch::optim::AdamWOptions(0.01));
  starling::Trainer trainer(flock, *net, adamw, {.method = "dsgd-awc"});

  torch::manual_seed(100 + flock.rank());  // every rank has its own data
  double loss = 0;
  for (int step = 0; step < 300; ++step) {
    const auto x = torch::randn({64, 16}, device);
    const auto y = x.sum(1, true);
    trainer.zero_grad();
    auto error = torch::mse_loss(net->forward(x), y);
    error.backward();
    trainer.step();
    if (step % 50 == 49)
      loss = error.item<double>();  // reading a number waits for the GPU, so do not do it in every step
  }
  const double distance = trainer.consensus_distance();
  if (flock.rank() == 0)
    std::cout << "trained on " << device << ": loss " << loss << ", distance between the models " << distance
              << '\n';
  return loss < 1 ? 0 : 1;
}
