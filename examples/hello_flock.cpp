// Started alone, this is a flock of one; with `starling run -n 4 -- build/release/bin/example_hello_flock` a
// flock of four.

#include <iostream>
#include <sstream>
#include <starling/starling.h>

int main() {
  auto flock = starling::join();
  std::vector<double> x = {static_cast<double>(flock.rank())};
  flock.average(x);
  std::ostringstream line;  // one write, so that lines of different ranks do not mix
  line << "rank " << flock.rank() << " of " << flock.size() << ": the average rank is " << x[0] << '\n';
  std::cout << line.str();
  return x[0] == (flock.size() - 1) / 2.0 ? 0 : 1;
}
