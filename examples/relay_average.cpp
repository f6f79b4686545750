// Averages along a tree: values of every rank reach all others, one step later per hop, though ranks only
// exchange with neighbors.
//
//   starling run -n 4 -- example_relay_average
#include <iostream>
#include <starling/starling.h>

int main() {
  auto flock = starling::join();
  auto relay = flock.relay("chain");
  for (int k = 0; k < flock.size(); ++k) {
    std::vector<float> x(1000, static_cast<float>(flock.rank()));
    relay.average(x);
    if (flock.rank() == 0)
      std::cout << "step " << k << ": " << x[0] << " from " << relay.contributors() << " ranks\n";
  }
  return relay.contributors() == flock.size() ? 0 : 1;
}
