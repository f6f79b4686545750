#include "tool/torch/bench_worker.h"

#include <chrono>
#include <fmt/format.h>
#include <iostream>
#include <map>
#include <sstream>

#include "starling/base/error.h"
#include "starling/train/model/model.h"
#include "starling/train/trainer.h"

namespace starling::tool {
namespace {

// Next to no learning: a network that has learnt its one batch by heart computes with denormal numbers, which
// are slow.
constexpr double kLr = 1e-5;

// A network with its optimizer, and a trainer unless it trains "alone" or only computes "gradients".
class Contender {
 public:
  Contender(const Flock& flock, const TrainingWork& work, const std::string& who, const std::string& topology,
            const std::string& name)
      : updates_(who != "gradients") {
    torch::manual_seed(1);
    net_ = make_model(work.model, {work.channels, work.height, work.width, work.classes});
    sgd_ =
        std::make_unique<torch::optim::SGD>(net_->parameters(), torch::optim::SGDOptions(kLr).momentum(0.9));
    if (who != "alone" && updates_)
      trainer_ = std::make_unique<Trainer>(flock, *net_, *sgd_,
                                           TrainerOptions{.method = who, .topology = topology, .name = name});
    torch::manual_seed(100 + static_cast<std::uint64_t>(flock.rank()));
    images_ = torch::randn({work.batch, work.channels, work.height, work.width});
    labels_ = torch::randint(work.classes, {work.batch}, torch::kLong);
  }

  void step() {
    trainer_ ? trainer_->zero_grad() : sgd_->zero_grad();
    torch::nn::functional::cross_entropy(net_->forward(images_), labels_).backward();
    if (trainer_)
      trainer_->step();
    else if (updates_)
      sgd_->step();
  }
  double waited() const { return trainer_ ? trainer_->waited() : 0; }

 private:
  bool updates_;
  ModelPtr net_;
  std::unique_ptr<torch::optim::SGD> sgd_;
  std::unique_ptr<Trainer> trainer_;
  torch::Tensor images_, labels_;
};

}  // namespace

const TrainingWork& training_work(const std::string& name) {
  static const std::vector<TrainingWork> all = {
      {"lenet", "lenet", 1, 28, 28, 10, 32},
      {"resnet20", "resnet20", 3, 32, 32, 10, 32},
      {"mlp", "mlp(layers=8, width=1024)", 1, 32, 32, 1024, 128},
  };
  for (const TrainingWork& work : all)
    if (work.name == name) return work;
  throw InvalidArgument(fmt::format("no benchmark trains '{}'", name));
}

void be_training_worker(const std::string& name, int threads) {
  torch::set_num_threads(threads);
  const TrainingWork& work = training_work(name);
  Flock flock = join();
  std::map<std::string, Contender> contenders;
  std::string line;
  while (std::getline(std::cin, line)) {
    std::istringstream words(line);
    std::string who, topology;
    int steps = 0;
    words >> who >> topology >> steps;
    const std::string key = who + " " + topology;
    auto found = contenders.find(key);
    if (found == contenders.end())
      found = contenders.emplace(key, Contender(flock, work, who, topology, key)).first;
    Contender& contender = found->second;
    const double waited = contender.waited();
    flock.barrier();
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < steps; ++i) contender.step();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    std::cout << took.count() << ' ' << contender.waited() - waited << std::endl;
  }
}

}  // namespace starling::tool
