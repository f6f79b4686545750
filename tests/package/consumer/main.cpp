#include <iostream>
#include <starling/starling.h>

int main() {
  const auto ceca = starling::make_schedule("ceca(k=2)", 100);
  const auto result = starling::run_consensus(ceca);
  std::cout << "Starling " << STARLING_VERSION << ": " << ceca->name() << " agrees in " << result.steps
            << " steps\n";
  return result.steps == 5 ? 0 : 1;
}
