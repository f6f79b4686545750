// A topology of your own: a class with one function, and one line to register it. Then all of Starling can
// use it.

#include <iostream>
#include <starling/starling.h>

using namespace starling;

// Every rank receives from its mirror image and, in the next step, from its left neighbor.
class Mirror final : public Schedule {
 public:
  using Schedule::Schedule;
  Step period() const override { return 2; }

 private:
  void fill(Step step, Rank rank, Exchange& out) const override {
    const Rank n = size();
    const Rank source = step % 2 == 0 ? n - 1 - rank : (rank + n - 1) % n;
    const Rank destination = step % 2 == 0 ? n - 1 - rank : (rank + 1) % n;
    if (source == rank) return;
    out.self_weight = 0.5;
    out.add_source(source, 0.5);
    out.add_destination(destination);
  }
};

int main() {
  register_topology(
      {.name = "mirror",
       .summary = "the mirror image and the left neighbor in turn",
       .parameters = {},
       .make = [](const Parameters&,
                  const TopologySetting& setting) { return std::make_shared<Mirror>(setting.n); },
       .changing = true});

  const Analysis analysis = analyze(make_schedule("mirror", 16));
  std::cout << "mirror on 16 ranks: doubly stochastic: "
            << (*analysis.row_stochastic && *analysis.column_stochastic ? "yes" : "no") << ", rho "
            << analysis.rho->value << '\n';

  // It can be nested like any other topology.
  const ConsensusResult result = run_consensus(make_schedule("hierarchical(outer=mirror, local=4)", 64));
  std::cout << "64 ranks on 16 machines agree in " << result.steps << " steps\n";
  return result.outcome == ConsensusResult::Outcome::reached ? 0 : 1;
}
