// A method and a topology of your own: two classes, and one line each to register them. Then both names work
// everywhere: here in the simulator, with 64 nodes in this process, and on a flock of processes.
//
//   starling run -n 4 -- example_my_method
#include <cmath>
#include <iostream>
#include <starling/starling.h>

using namespace starling;

// DSGD with momentum on the differences to the neighbors: v <- beta v + sum of w_j (x_j - x), x <- x + v.
class MomentumGossip : public Method {
 public:
  explicit MomentumGossip(double beta) : beta_(beta) {}

  void adapt(Block& block) override {
    block.update();                                                    // x <- x + U(x, gradient)
    block.neighbors().differences({block.x, block.state("pull"), 0});  // sends x; the driver waits
  }
  void combine(Block& block) override {
    const Buffer v = block.state("velocity");                  // lasts, and is saved with the block
    block.combine(v, {{v, beta_}, {block.state("pull"), 1}});  // v <- beta v + pull
    block.combine(block.x, {{block.x, 1}, {v, 1}});
  }
  // Without the dead rank, the velocities do not sum to zero any more.
  void view_changed(Block& block) override { block.zero(block.state("velocity")); }

 private:
  double beta_;
};

// Two rails with rungs: 0-1, 2-3, 4-5, ... One weight for all edges is symmetric, so columns sum to one, too.
class Ladder : public Schedule {
 public:
  using Schedule::Schedule;

 private:
  void fill(Step, Rank rank, Exchange& out) const override {
    for (const Rank other : {rank - 2, rank + 2, rank ^ 1}) {
      if (other < 0 || other >= size()) continue;
      out.add_pair(other, 0.25);
      out.self_weight -= 0.25;
    }
  }
};

// Node r's minimum has every element r, so the common minimum is the mean of the ranks.
class Own : public Objective {
 public:
  explicit Own(Rank nodes) : Objective(nodes, 3) {}
  using Objective::gradient;
  void gradient(Rank node, Step, std::span<const double> x, std::span<double> out) const override {
    for (std::size_t k = 0; k < x.size(); ++k) out[k] = x[k] - node;
  }
  double value(std::span<const double> x) const override {
    double sum = 0;
    for (Rank node = 0; node < nodes(); ++node)
      for (const double element : x) sum += std::pow(element - node, 2) / 2;
    return sum / nodes();
  }
};

int main() {
  register_method({"momentum-gossip",
                   "DSGD with momentum on the pull toward the neighbors",
                   {{"beta", "0.9", "the share of the velocity that is kept, from 0 to below 1"}},
                   [](const Parameters& given) {
                     return std::make_shared<MomentumGossip>(given.number("beta", 0, 0.999));
                   }});
  register_topology({.name = "ladder",
                     .summary = "two rails with rungs",
                     .parameters = {},
                     .make = [](const Parameters&, const TopologySetting& setting) {
                       return std::make_shared<Ladder>(setting.n);
                     }});
  auto flock = join();
  bool good = true;

  if (flock.rank() == 0) {
    TrainingOptions options;
    options.topology = "ladder";
    options.lr = 0.002;
    options.steps = 8000;
    std::vector<double> apart;
    for (const char* method : {"dsgd-atc", "momentum-gossip"}) {
      options.method = method;
      apart.push_back(run_training(Own(64), options).curve.back().consensus);
      std::cout << "simulated: 64 nodes, " << method << " on ladder: " << apart.back() << " apart\n";
    }
    good = apart[1] < apart[0] / 2;
  }

  std::vector<double> x(3, 0.0), gradient(3);
  auto driver =
      drive(flock, buffer_of(x), buffer_of(gradient),
            {.method = "momentum-gossip(beta=0.8)", .topology = "ladder", .optimizer = "sgd(lr=0.01)"});
  const Own objective(flock.size());
  for (int step = 0; step < 3000; ++step) {
    driver.begin();
    objective.gradient(flock.rank(), step, x, gradient);
    driver.finish();
  }
  const double best = (flock.size() - 1) / 2.0;
  if (flock.rank() == 0) std::cout << "on the flock: x is " << x[0] << ", the best is " << best << '\n';
  return good && std::abs(x[0] - best) < 0.05 ? 0 : 1;
}
