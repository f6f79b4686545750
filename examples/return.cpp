// A rank that was killed returns: a shell starts it again, and the other ranks, which have continued, admit
// it.
//
//   starling run -n 3 --fabric c10d -- sh -c 'example_return || STARLING_ENTER=1 example_return'
#include <cmath>
#include <csignal>
#include <iostream>
#include <starling/starling.h>

int main() {
  auto flock = starling::join();  // with STARLING_ENTER=1 it waits here until it is admitted
  if (flock.size() == 1) return 0;
  flock.on_peer_failure(starling::OnPeerFailure::reweight);
  flock.set_schedule("ring");

  std::vector<double> x = {flock.entered() ? 100.0 : 1.0};
  if (!flock.entered()) {
    for (int k = 0; k < 20; ++k) {
      if (k == 10 && flock.rank() == 1) raise(SIGKILL);
      flock.neighbor_allreduce(x);
    }
    while (flock.newcomers() == 0) {  // members continue, and check for newcomers from time to time
      flock.neighbor_allreduce(x);
      flock = flock.admit();  // the same flock, unless a newcomer has joined
    }
  }

  // From here on members and newcomers do the same.
  for (int k = 0; k < 60; ++k) flock.neighbor_allreduce(x);
  if (flock.entered())
    std::cout << "returned as rank " << flock.rank() << " of " << flock.size() << ", they agree on " << x[0]
              << '\n';
  return std::abs(x[0] - 34) < 1e-9 ? 0 : 1;
}
