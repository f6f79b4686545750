// Uses every installed public header that does not need torch.
#include <iostream>
#include <starling/checkpoint.h>
#include <starling/data.h>
#include <starling/extension.h>
#include <starling/report.h>
#include <starling/starling.h>
#include <string_view>

// `consumer join` runs as a rank of a job.
int main(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == "join") {
    const starling::Flock flock = starling::join();
    std::cout << "rank " << flock.rank() << " of " << flock.size() << std::endl;
    return 0;
  }
  const auto ceca = starling::make_schedule("ceca(k=2)", 100);
  const auto result = starling::run_consensus(ceca);
  std::cout << "Starling " << STARLING_VERSION << ": " << ceca->name() << " agrees in " << result.steps
            << " steps\n";
  return result.steps == 5 ? 0 : 1;
}
