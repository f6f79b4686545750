#include "method/dense.h"

namespace starling::method {
namespace {

/// Written from the definition of the rounds, without the library's schedule. `pairs` selects CECA-1P.
class DenseCeca : public Dense {
 public:
  DenseCeca(const DenseSetting& setting, const Problem& problem, const LocalRule& rule)
      : Dense(setting, problem, rule),
        k_(setting.topology == "ceca(k=2)" ? 2 : 1),
        pairs_(setting.topology == "ceca-1p"),
        h_(setting.steps("h", 1)) {
    for (long rest = problem.n - 1; rest > 0; rest /= k_ + 1)
      digits_.insert(digits_.begin(), rest % (k_ + 1));
    if (digits_.empty()) digits_ = {-1};  // nothing to do
    a_ = b_ = x;
  }
  const Vector& model(Rank rank) const override { return a_[at(rank)]; }

 private:
  long digit(std::size_t phase) const { return digits_[phase % digits_.size()]; }

  void step(Step t) override {
    const bool global = h_ > 1 && (t + 1) % h_ == 0;
    const auto phase = static_cast<std::size_t>(h_ > 1 ? t % h_ : t);
    const bool evaluate_a = global || digit(phase) != 0;
    for (std::size_t i = 0; i < n(); ++i) {
      x[i] = evaluate_a ? a_[i] : b_[i];
      const Vector moved = updated(i, x[i], gradient(i));
      for (std::size_t k = 0; k < moved.size(); ++k) {
        a_[i][k] += moved[k] - x[i][k];
        b_[i][k] += moved[k] - x[i][k];
      }
    }
    if (global) {
      a_ = std::vector<Vector>(n(), mean_of(a_));
      b_ = std::vector<Vector>(n(), mean_of(b_));
    } else if (digit(phase) >= 0) {
      round(phase);
    }
  }

  void round(std::size_t phase) {
    m_ = phase % digits_.size() == 0 ? 0 : m_;
    const long d = digit(phase);
    const long next = (k_ + 1) * m_ + d;
    std::vector<Vector> a(n()), b(n());
    for (std::size_t i = 0; i < n(); ++i) {
      Vector heard_a(problem_.count), heard_b(problem_.count);
      const auto hear = [&](Vector& sum, const std::vector<Vector>& of, long from) {
        const auto size = static_cast<long>(n());
        const Vector& one = of[static_cast<std::size_t>((from % size + size) % size)];
        for (std::size_t k = 0; k < one.size(); ++k) sum[k] += one[k];
      };
      const auto self = static_cast<long>(i);
      if (pairs_) {
        hear(d == 1 ? heard_a : heard_b, d == 1 ? a_ : b_,
             self % 2 == 1 ? self + 2 * m_ + 1 : self - 2 * m_ - 1);
      } else {
        for (long j = 1; j <= d; ++j) hear(heard_a, a_, self - j * (m_ + 1));
        for (long j = 1; j <= k_ - d && m_ > 0; ++j)
          hear(heard_b, b_, self - ((d + 1) * (m_ + 1) - 1 + (j - 1) * m_));
      }
      const auto m = static_cast<Number>(m_);
      for (std::size_t k = 0; k < problem_.count; ++k) {
        a[i].push_back(((m + 1) * (a_[i][k] + heard_a[k]) + m * heard_b[k]) / static_cast<Number>(next + 1));
        b[i].push_back(((m + 1) * heard_a[k] + m * (b_[i][k] + heard_b[k])) / static_cast<Number>(next));
      }
    }
    a_ = a;
    b_ = b;
    m_ = next;
  }

  long k_;
  bool pairs_;
  Step h_;
  std::vector<long> digits_;
  long m_ = 0;
  std::vector<Vector> a_, b_;
};

}  // namespace

std::unique_ptr<Dense> make_dense_ceca(const DenseSetting& setting, const Problem& problem,
                                       const LocalRule& rule) {
  return std::make_unique<DenseCeca>(setting, problem, rule);
}

}  // namespace starling::method
