// Which topology reaches consensus fastest on 100 ranks? Analysis and simulation from C++.

#include <iomanip>
#include <iostream>
#include <starling/starling.h>

using namespace starling;

int main() {
  std::cout << std::left << std::setw(24) << "topology" << std::setw(12) << "peers" << std::setw(12) << "rho"
            << "steps\n";
  for (const char* name :
       {"ring", "torus", "exponential", "one-peer-exponential", "od-equidyn", "base(k=2)", "ceca"}) {
    const SchedulePtr schedule = make_schedule(name, 100);
    const Analysis analysis = analyze(schedule);
    const ConsensusResult run = run_consensus(schedule);
    std::cout << std::setw(24) << name << std::setw(12) << analysis.cost.peers << std::setw(12)
              << analysis.rho->value << run.steps << '\n';
  }

  // One rank's exchange in one step, which is all that a worker needs.
  const Exchange exchange =
      make_schedule("one-peer-exponential", 1'000'000)->exchange(/*step=*/5, /*rank=*/42);
  std::cout << "of a million, rank 42 receives from rank " << exchange.sources[0].rank
            << " in step 5 and sends to rank " << exchange.destinations[0].rank << '\n';
  return exchange.sources[0].rank == 74 ? 0 : 1;
}
