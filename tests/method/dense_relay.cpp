#include <map>

#include "method/dense.h"

namespace starling::method {
namespace {

/// Vectors relayed along one tree, or along several trees that share the coordinates: of two trees, the first
/// carries every second coordinate.
class DenseRelay : public OnSchedule {
 public:
  DenseRelay(const DenseSetting& setting, const Problem& problem, const LocalRule& rule)
      : OnSchedule(setting, problem, rule),
        overlap_(setting.text("overlap", "false") == "true"),
        heard_(static_cast<std::size_t>(schedule_->period())) {}

 protected:
  struct Message {
    Vector sum;
    Number count = 0;
  };
  /// Called for every rank and coordinate with the result of the relay of y.
  using Use = std::function<void(std::size_t i, std::size_t k, Number sum, Number count)>;
  void relay(const std::vector<Vector>& y, const Use& use) {
    for (std::size_t tree = 0; tree < heard_.size(); ++tree) relay_along(tree, y, use);
  }

 private:
  using Link = std::pair<std::size_t, std::size_t>;  // from, to

  static void add(Message& to, const Message& more) {
    for (std::size_t k = 0; k < more.sum.size(); ++k) to.sum[k] += more.sum[k];
    to.count += more.count;
  }

  void relay_along(std::size_t tree, const std::vector<Vector>& y, const Use& use) {
    std::vector<std::vector<std::size_t>> around(n());
    for (std::size_t i = 0; i < n(); ++i)
      for (const Source& source : schedule_->exchange(static_cast<Step>(tree), static_cast<Rank>(i)).sources)
        around[i].push_back(at(source.rank));
    std::map<Link, Message>& before = heard_[tree];  // empty in the first step
    std::map<Link, Message> said;
    for (std::size_t i = 0; i < n(); ++i)
      for (const std::size_t j : around[i]) {
        Message message{y[i], 1};
        for (const std::size_t k : around[i])
          if (k != j) add(message, before[{k, i}]);
        said[{i, j}] = message;
      }
    for (std::size_t i = 0; i < n(); ++i) {
      Message all{y[i], 1};
      for (const std::size_t j : around[i]) add(all, overlap_ ? before[{j, i}] : said[{j, i}]);
      for (std::size_t k = tree; k < problem_.count; k += heard_.size()) use(i, k, all.sum[k], all.count);
    }
    heard_[tree] = said;
  }

  bool overlap_;  // uses messages of the previous step
  std::vector<std::map<Link, Message>> heard_;
};

class DenseRelaySgd : public DenseRelay {
  using DenseRelay::DenseRelay;
  void step(Step) override {
    if (reference_.empty()) reference_ = x;
    const std::string missing = setting_.text("missing", "counts");
    const std::vector<Vector> y = all_updated();
    const auto size = static_cast<Number>(n());
    relay(y, [&](std::size_t i, std::size_t k, Number sum, Number count) {
      const Number filled = missing == "own" ? y[i][k] : reference_[i][k];
      x[i][k] = missing == "counts" ? sum / count : (sum + (size - count) * filled) / size;
    });
  }
  std::vector<Vector> reference_;
};

/// The relay of updates, each of which reaches every rank once.
class DenseRelayGrad : public DenseRelay {
  using DenseRelay::DenseRelay;
  void step(Step) override {
    std::vector<Vector> u = all_updated();
    for (std::size_t i = 0; i < n(); ++i) u[i] = u[i] - x[i];
    const auto size = static_cast<Number>(n());
    relay(u, [&](std::size_t i, std::size_t k, Number sum, Number) { x[i][k] += sum / size; });
  }
};

}  // namespace

DenseTable dense_relays() {
  return {{"relay-sgd", make_dense_as<DenseRelaySgd>}, {"relay-sum-grad", make_dense_as<DenseRelayGrad>}};
}

}  // namespace starling::method
