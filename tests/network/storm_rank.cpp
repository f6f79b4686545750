// A rank of bench/network/storm.py: averages with its neighbors, sometimes all-reduces, and finally prints
// its values and members. Every value is a convex combination of the initial values, whatever happens.
//     starling_storm_rank STEPS ELEMENTS raise|reweight
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <iomanip>
#include <iostream>
#include <starling/starling.h>
#include <string>
#include <thread>

namespace {

using starling::Rank;

std::string list(const std::vector<Rank>& ranks) {
  std::string text;
  for (const Rank r : ranks) text += (text.empty() ? "" : ",") + std::to_string(r);
  return text;
}

// Column r holds the share of rank r's initial value in this rank's values; the shares add up to 1.
void check_parts(const std::vector<double>& x, std::size_t ranks) {
  double sum = 0;
  for (std::size_t r = 0; r < ranks; ++r) {
    if (!(x[r] >= -1e-9 && x[r] <= 1 + 1e-9)) throw starling::Error("a part of " + std::to_string(x[r]));
    sum += x[r];
  }
  if (!(std::abs(sum - 1) < 1e-6)) throw starling::Error("parts add up to " + std::to_string(sum));
}

void work(int steps, std::size_t elements, const std::string& on_peer_failure) {
  auto flock = starling::join();
  if (on_peer_failure == "reweight") flock.on_peer_failure(starling::OnPeerFailure::reweight);
  flock.set_schedule("ring");
  const auto ranks = static_cast<std::size_t>(flock.size());
  std::vector<double> x(std::max(elements, ranks), 0.5);
  for (std::size_t r = 0; r < ranks; ++r) x[r] = static_cast<Rank>(r) == flock.rank() ? 1 : 0;
  std::cout << "joined" << std::endl;
  for (int step = 0; step < steps; ++step) {
    flock.neighbor_allreduce(x);
    check_parts(x, ranks);
    if (step % 25 == 24) {
      std::vector<double> steps_of_all = {static_cast<double>(step)};
      flock.allreduce(steps_of_all, starling::Reduction::max);
      if (steps_of_all[0] != step) throw starling::Error("ranks are at different steps");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  std::vector<double> present(ranks, 0);
  present[static_cast<std::size_t>(flock.rank())] = 1;
  flock.allreduce(present, starling::Reduction::sum);
  std::vector<Rank> contributors;
  for (std::size_t r = 0; r < ranks; ++r)
    if (present[r] == 1) contributors.push_back(static_cast<Rank>(r));
  flock.allreduce(x, starling::Reduction::sum);
  std::cout << std::setprecision(17) << "finished view " << list(flock.view().members) << " contributors "
            << list(contributors) << " sum";
  for (std::size_t r = 0; r < ranks; ++r) std::cout << ' ' << x[r];
  std::cout << std::endl;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  try {
    work(std::atoi(argv[1]), static_cast<std::size_t>(std::atoll(argv[2])), argv[3]);
    return 0;
  } catch (const std::exception& error) {
    std::cout << "error " << error.what() << std::endl;
    return 3;
  }
}
