// Training that goes on when a rank is lost: the others agree on a new view and average without it.
//     starling run -n 4 -- example_survive
#include <cmath>
#include <iostream>
#include <starling/starling.h>

int main() {
  auto flock = starling::join();
  flock.on_loss(starling::OnLoss::reweight);  // without this, those who need the lost rank get PeerLost
  flock.set_schedule("one-peer-exponential");

  std::vector<double> x = {static_cast<double>(flock.rank())};
  for (int k = 0; k < 200; ++k) {
    // The last rank leaves without a word; being killed looks the same to the others.
    if (k == 50 && flock.size() > 1 && flock.rank() == flock.size() - 1) return 0;
    flock.neighbor_allreduce(x);
  }

  // Collectives too are of the survivors, and everybody gets the same.
  const auto all = flock.allgather(x);
  double spread = 0;
  for (const double value : all) spread = std::max(spread, std::abs(value - all[0]));
  const starling::View view = flock.view();
  if (flock.rank() == 0)
    std::cout << all.size() << " of " << flock.size() << " ranks are left (view " << view.epoch
              << "), they agree on " << x[0] << " within " << spread << '\n';
  return spread < 1e-12 && all.size() == view.members.size() ? 0 : 1;
}
