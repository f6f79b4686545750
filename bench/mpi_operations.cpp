// Operations written directly in MPI, to compare with Starling's on the mpi fabric. Every rank reads lines
// "one-peer ELEMENTS REPEATS" and "all-reduce ELEMENTS REPEATS" (MPI_Allreduce) and answers each with its
// seconds.

#include <cstdio>
#include <exception>
#include <functional>
#include <iostream>
#include <map>
#include <mpi.h>
#include <sstream>

#include "bench/mpi_by_hand.h"
#include "bench/mpi_sum.h"
#include "starling/base/stopwatch.h"

namespace starling::bench {
namespace {

using Operate = std::function<void(std::vector<float>&)>;

// Repeats one operation on one block, and checks the first result.
class Repeated {
 public:
  Repeated(const Work& work, int rank, Operate operate)
      : operate_(std::move(operate)), x_(work.elements, start_value(rank)) {
    operate_(x_);
    check_first(work, rank, x_);
  }

  double seconds(int repeats) {
    MPI_Barrier(MPI_COMM_WORLD);
    return seconds_of([&] {
      for (int i = 0; i < repeats; ++i) operate_(x_);
    });
  }

 private:
  Operate operate_;
  std::vector<float> x_;
};

Repeated make(const std::string& name, Work work, int rank) {
  if (name == "all-reduce") {
    work.operation = Operation::allreduce;
    return {work, rank, sum_of_all};
  }
  if (name != "one-peer") throw std::invalid_argument("'" + name + "' is neither one-peer nor all-reduce");
  return {work, rank, AverageByHand(work, rank)};
}

void serve() {
  Work work;
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &work.ranks);
  std::map<std::pair<std::string, std::size_t>, Repeated> ready;
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string name;
    int repeats = 0;
    if (!(words >> name >> work.elements >> repeats))
      throw std::invalid_argument("'" + line + "': it is an operation, ELEMENTS and REPEATS");
    const std::pair key(name, work.elements);
    auto found = ready.find(key);
    if (found == ready.end()) found = ready.emplace(key, make(name, work, rank)).first;
    std::cout << found->second.seconds(repeats) << std::endl;
  }
}

}  // namespace
}  // namespace starling::bench

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  try {
    starling::bench::serve();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "starling_mpi_operations: %s\n", error.what());
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  MPI_Finalize();
  return 0;
}
