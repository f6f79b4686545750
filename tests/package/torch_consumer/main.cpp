#include <iostream>
#include <starling/models.h>
#include <starling/starling.h>

// Trains on a flock of one for one step; starling.h includes all it needs.
int main() {
  torch::nn::Linear net(4, 2);
  torch::optim::SGD sgd(net->parameters(), 0.1);
  starling::Trainer trainer(starling::join(), *net, sgd);
  trainer.zero_grad();
  net->forward(torch::ones({3, 4})).sum().backward();
  trainer.step();
  std::cout << trainer.parameter_count() << " parameters, " << trainer.steps() << " step\n";
  return trainer.parameter_count() == 10 && trainer.steps() == 1 ? 0 : 1;
}
