#include "bench/torch/worker.h"

#include <ATen/Parallel.h>
#include <chrono>
#include <fmt/format.h>
#include <functional>
#include <iostream>
#include <map>
#include <sstream>
#include <thread>

#include "starling/base/error.h"
#include "starling/train/model/model.h"
#include "starling/train/trainer.h"

namespace starling::bench {
namespace {

// Almost no learning: a network that has memorized its one batch computes with denormal numbers, which are
// slow.
constexpr double kLr = 1e-5;

// A network with its optimizer, and a trainer unless it trains "alone" or only computes "gradients".
class Contender {
 public:
  Contender(const Flock& flock, const TrainingWork& work, const TrainerOptions& options)
      : updates_(options.method != "gradients") {
    torch::manual_seed(1);
    net_ = make_model(work.model, {work.channels, work.height, work.width, work.classes});
    sgd_ =
        std::make_unique<torch::optim::SGD>(net_->parameters(), torch::optim::SGDOptions(kLr).momentum(0.9));
    if (options.method != "alone" && updates_)
      trainer_ = std::make_unique<Trainer>(flock, *net_, *sgd_, options);
    torch::manual_seed(100 + static_cast<std::uint64_t>(flock.rank()));
    images_ = torch::randn({work.batch, work.channels, work.height, work.width});
    labels_ = torch::randint(work.classes, {work.batch}, torch::kLong);
  }

  void step() {
    trainer_ ? trainer_->zero_grad() : sgd_->zero_grad();
    torch::cross_entropy_loss(net_->forward(images_), labels_).backward();
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

// The steps in which a rank is late, and by how much.
struct Lateness {
  long milliseconds = 0, period = 1, phase = 0;

  void wait_in(long step) const {
    if (milliseconds > 0 && step % period == phase)
      std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
  }
};

struct Request {
  int steps = 0;
  TrainerOptions trainer;  // its name identifies the contender, which continues when it is requested again
  Lateness late;
  bool marks = false;
};

Lateness read_lateness(const std::string& text) {
  Lateness late;
  char comma = 0;
  std::istringstream words(text);
  if (!(words >> late.milliseconds >> comma >> late.period >> comma >> late.phase) || late.period < 1)
    throw InvalidArgument(fmt::format("late={}: it is late=MILLISECONDS,PERIOD,PHASE", text));
  return late;
}

Request read_request(const std::string& line) {
  Request request;
  TrainerOptions& trainer = request.trainer;
  const std::map<std::string, std::function<void(const std::string&)>> options = {
      {"message", [&](const std::string& value) { trainer.message = value; }},
      {"eager", [&](const std::string& value) { trainer.eager = value == "1"; }},
      {"on_peer_failure", [&](const std::string& value) { trainer.on_peer_failure = value; }},
      {"late", [&](const std::string& value) { request.late = read_lateness(value); }},
      {"marks", [&](const std::string& value) { request.marks = value == "1"; }},
  };
  std::istringstream words(line);
  words >> trainer.method >> trainer.topology >> request.steps;
  for (std::string word; words >> word;) {
    const std::size_t equals = word.find('=');
    const auto option = options.find(word.substr(0, equals));
    if (equals == std::string::npos || option == options.end())
      throw InvalidArgument(fmt::format("unknown option '{}'", word));
    option->second(word.substr(equals + 1));
  }
  trainer.name = fmt::format("{} {} {} {} {}", trainer.method, trainer.topology, trainer.message,
                             trainer.eager ? "eager" : "", trainer.on_peer_failure);
  if (trainer.topology == "-") trainer.topology.clear();  // for a method without a topology
  return request;
}

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string answer(const Flock& flock, Contender& contender, const Request& request) {
  const double waited = contender.waited();
  std::vector<double> marks;
  Flock(flock).barrier();
  // Steps not measured, so that messages that an eager trainer has sent ahead do not count.
  for (int step = 0; step < 2; ++step) contender.step();
  const double begin = now();
  for (int step = 0; step < request.steps; ++step) {
    request.late.wait_in(step);
    contender.step();
    if (request.marks) marks.push_back(now());
  }
  const double took = now() - begin;
  std::string text = fmt::format("{} {}", took, contender.waited() - waited);
  for (const double mark : marks) text += fmt::format(" {:.6f}", mark);
  return text;
}

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
  at::set_num_threads(threads);
  const TrainingWork& work = training_work(name);
  Flock flock = join();
  std::map<std::string, Contender> contenders;
  for (std::string line; std::getline(std::cin, line);) {
    try {
      const Request request = read_request(line);
      auto found = contenders.find(request.trainer.name);
      if (found == contenders.end())
        found = contenders.emplace(request.trainer.name, Contender(flock, work, request.trainer)).first;
      std::cout << answer(flock, found->second, request) << std::endl;
    } catch (const InvalidArgument& error) {
      std::cout << "cannot " << error.what() << std::endl;  // the other ranks report the same
    }
  }
}

}  // namespace starling::bench
