#include <fmt/format.h>
#include <numeric>

#include "starling/base/error.h"
#include "starling/base/integer.h"
#include "starling/topology/family/common.h"
#include "starling/topology/family/list.h"

namespace starling::topology::family {
namespace {

/// In turn, one local rank q* of every machine exchanges with q* of another machine, the others within
/// theirs.
class InnerOuter final : public Schedule {
 public:
  InnerOuter(Machines shape, bool exponential)
      : Schedule(shape.machines * shape.local),
        shape_(shape),
        outer_hops_(exponential && shape.machines > 1 ? floor_log2(shape.machines - 1) + 1 : 1),
        inner_hops_(exponential && shape.local > 2 ? floor_log2(shape.local - 2) + 1 : 1) {}

  Step period() const override {
    return std::lcm(std::lcm(Step{shape_.local}, Step{outer_hops_}), Step{inner_hops_});
  }

 private:
  void fill(Step step, Rank rank, Exchange& out) const override {
    if (size() == 1) return;
    const Rank local = shape_.local;
    const Rank machine = rank / local;
    const Rank q = rank % local;
    const auto turn = static_cast<Rank>(step % local);  // q*
    out.self_weight = 0.5;
    if (q == turn) {
      const Rank h = wrap(Rank{1} << (step % outer_hops_), shape_.machines);
      out.add_destination(add_mod(machine, h, shape_.machines) * local + q);
      out.add_source(sub_mod(machine, h, shape_.machines) * local + q, 0.5);
      return;
    }
    // Hops within a machine skip q*.
    const Rank d = Rank{1} << (step % inner_hops_);
    const Rank ahead = d + (d >= wrap(turn - q, local) ? 1 : 0);
    const Rank behind = d + (d >= wrap(q - turn, local) ? 1 : 0);
    out.add_destination(machine * local + wrap(q + ahead, local));
    out.add_source(machine * local + wrap(q - behind, local), 0.5);
  }

  Machines shape_;
  int outer_hops_;
  int inner_hops_;
};

Family inner_outer(const std::string& name, const std::string& summary, bool exponential) {
  return {.name = name,
          .summary = summary,
          .parameters = {{"local", "", "ranks per machine, at least 3"}},
          .make = [exponential](const Parameters& parameters,
                                const TopologySetting& setting) -> std::shared_ptr<Schedule> {
            const Machines shape = read_machines(parameters, setting.n);
            if (setting.n > 1 && (shape.local < 3 || shape.machines < 2))
              throw InvalidArgument(
                  fmt::format("{}: needs local >= 3 and at least 2 machines, not {} machines of {}",
                              parameters.owner(), shape.machines, shape.local));
            return std::make_shared<InnerOuter>(shape, exponential);
          },
          .changing = true};
}

}  // namespace

Family inner_outer_exponential() {
  return inner_outer("inner-outer-exponential",
                     "BlueFog's: one rank per machine communicates outside in turn, hops 2^p", true);
}
Family inner_outer_ring() {
  return inner_outer("inner-outer-ring", "BlueFog's: one rank per machine talks outside in turn, hops 1",
                     false);
}

}  // namespace starling::topology::family
