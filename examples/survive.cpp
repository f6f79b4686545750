// A flock that continues when a rank dies: the others agree on a new view and average without it.
//
//   starling run -n 4 -- example_survive
#include <cmath>
#include <csignal>
#include <iostream>
#include <starling/starling.h>

int main() {
  auto flock = starling::join();
  // Without this line, ranks that need the dead one throw PeerLost, and starling run stops the job.
  flock.on_peer_failure(starling::OnPeerFailure::reweight);
  flock.set_schedule("one-peer-exponential");

  std::vector<double> x = {static_cast<double>(flock.rank())};
  for (int k = 0; k < 200; ++k) {
    if (k == 50 && flock.size() > 1 && flock.rank() == flock.size() - 1) raise(SIGKILL);
    flock.neighbor_allreduce(x);
  }

  // Collectives cover the survivors, too, and all get the same result.
  const auto all = flock.allgather(x);
  double spread = 0;
  for (const double value : all) spread = std::max(spread, std::abs(value - all[0]));
  const starling::View view = flock.view();
  if (flock.rank() == 0)
    std::cout << all.size() << " of " << flock.size() << " ranks are left (view " << view.epoch
              << "), they agree on " << x[0] << " within " << spread << '\n';
  return spread < 1e-12 && all.size() == view.members.size() ? 0 : 1;
}
