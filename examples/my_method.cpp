// A method of your own: all you write is the class and one line to register it. This one averages with its
// neighbours in every second step only.
//     starling run -n 4 -- example_my_method
#include <cmath>
#include <iostream>
#include <starling/starling.h>

class EverySecond : public starling::Method {
 public:
  // The gradient is there: step, and start an average where one is due. The driver waits for it.
  void adapt(starling::Block& block) override {
    block.update();                               // x <- x + U(x, gradient), whatever the optimizer
    if (block.step % 2 == 1) block.mix(block.x);  // x <- the neighbours' weighted average
  }
};

int main() {
  starling::register_method(
      {"every-second", "averages in every second step", {}, [](const starling::Parameters&) {
         return std::make_shared<EverySecond>();
       }});

  auto flock = starling::join();
  // Rank r wants x = r; the flock wants the mean of that.
  std::vector<double> x(3, 0.0), gradient(3);
  auto driver =
      starling::drive(flock, starling::mutable_block(x), starling::mutable_block(gradient),
                      {.method = "every-second", .topology = "exponential", .optimizer = "sgd(lr=0.01)"});
  for (int step = 0; step < 2000; ++step) {
    driver.begin();
    for (std::size_t k = 0; k < x.size(); ++k) gradient[k] = x[k] - flock.rank();
    driver.finish();
  }

  const double best = (flock.size() - 1) / 2.0;
  if (flock.rank() == 0) std::cout << "x is " << x[0] << ", the best for all is " << best << '\n';
  return std::abs(x[0] - best) < 0.1 ? 0 : 1;
}
