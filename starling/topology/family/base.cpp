#include "starling/topology/family/base.h"

#include <algorithm>

#include "starling/base/integer.h"
#include "starling/topology/family/list.h"

namespace starling::topology::family {

SimpleBase::SimpleBase(std::int64_t n, std::int64_t k) : base_(k + 1) {
  if (HyperHypercube::possible(n, k)) {
    smooth_.emplace(n, k);
    return;
  }
  const int top = ceil_log(base_, n + 1) - 1;  // p_0: the position of the leading digit
  std::int64_t rest = n;
  for (int p = top; p >= 0; --p) {
    const std::int64_t piece = power(base_, p);
    const std::int64_t digit = rest / piece;
    if (digit == 0) continue;
    parts_.push_back(
        {n - rest, digit, piece, rest, HyperHypercube(digit * piece, k), HyperHypercube(piece, k)});
    rest -= digit * piece;
  }
  inside_rounds_ = top + (parts_[0].digit > 1 ? 1 : 0);
  length_ = inside_rounds_ + top + 1;
}

int SimpleBase::length() const {
  return smooth_ ? smooth_->length() : length_;
}

void SimpleBase::fill(int round, std::int64_t index, std::int64_t origin, Exchange& out) const {
  if (smooth_) {
    smooth_->fill(round, index, origin, 1, out);
    return;
  }
  const auto last = static_cast<int>(parts_.size()) - 1;
  int l = last;
  while (parts_[static_cast<std::size_t>(l)].start > index) --l;
  const Part& part = parts_[static_cast<std::size_t>(l)];
  const int t = round - inside_rounds_;
  if (t < 0) {  // (a) every block averages internally
    part.whole.fill(round % part.whole.length(), index - part.start, origin + part.start, 1, out);
    return;
  }
  if (t < l) {
    // (b) a node receives from the last nodes of block t's sub-blocks that later blocks have not used yet
    const Part& sending = parts_[static_cast<std::size_t>(t)];
    const std::int64_t taken = part.tail - part.size() + (index - part.start);
    const double share = static_cast<double>(sending.size()) / static_cast<double>(sending.tail);
    out.self_weight = 1 - share;
    for (std::int64_t q = 0; q < sending.digit; ++q) {
      const std::int64_t j = sending.start + (q + 1) * sending.piece - 1 - taken;
      out.add_pair(static_cast<Rank>(origin + j), share / static_cast<double>(sending.digit));
    }
    return;
  }
  if (t == l && l != last) {
    const std::int64_t left = part.piece - (part.tail - part.size());  // nodes left in each sub-block's pool
    const std::int64_t at = (index - part.start) % part.piece;
    const std::int64_t q = (index - part.start) / part.piece;
    if (at >= left) {
      // The counterpart of (b): the node of a later block that receives from this one.
      const std::int64_t taken = part.piece - 1 - at;
      auto later = parts_.end() - 1;
      while (later->tail <= taken) --later;
      const std::int64_t i = later->start + taken - (later->tail - later->size());
      const double weight =
          static_cast<double>(part.size()) / static_cast<double>(part.tail) / static_cast<double>(part.digit);
      out.self_weight = 1 - weight;
      out.add_pair(static_cast<Rank>(origin + i), weight);
      return;
    }
    // (c) the nodes left, in order, average in groups of K; a single one idles.
    const std::int64_t place = q * left + at;
    const std::int64_t first = place / base_ * base_;
    const std::int64_t end = std::min(first + base_, left * part.digit);
    out.self_weight = 1.0 / static_cast<double>(end - first);
    for (std::int64_t other = first; other < end; ++other) {
      const std::int64_t j = part.start + other / left * part.piece + other % left;
      if (other != place) out.add_pair(static_cast<Rank>(origin + j), out.self_weight);
    }
    return;
  }
  // (d) finished blocks average internally; b_l counts how often this block did.
  const int b = l == last ? t - l : t - l - 1;
  if (part.size() < base_) {
    part.whole.fill(b % part.whole.length(), index - part.start, origin + part.start, 1, out);
  } else {
    const std::int64_t piece_start = part.start + (index - part.start) / part.piece * part.piece;
    part.each.fill(b % part.each.length(), index - piece_start, origin + piece_start, 1, out);
  }
}

std::int64_t SimpleBase::pairs_before(int round, std::int64_t index) const {
  if (smooth_) return smooth_->pairs_before(round, index);
  const auto last = static_cast<int>(parts_.size()) - 1;
  const int t = round - inside_rounds_;
  std::int64_t count = 0;
  for (int l = 0; l <= last && parts_[static_cast<std::size_t>(l)].start < index; ++l) {
    const Part& part = parts_[static_cast<std::size_t>(l)];
    const std::int64_t inside = std::min(index - part.start, part.size());
    if (t < 0) {
      count += part.whole.pairs_before(round % part.whole.length(), inside);
    } else if (t == l && l != last) {
      // Of the nodes left, every second one is the lower of its pair; all nodes used by later blocks are.
      const std::int64_t left = part.piece - (part.tail - part.size());
      count += std::min((inside + 1) / 2, left / 2) + std::max<std::int64_t>(0, inside - left);
    } else if (t >= l) {
      const int b = l == last ? t - l : t - l - 1;
      count += part.each.pairs_before(b % part.each.length(), inside);
    }
  }
  return count;
}

namespace {

// n without its prime factors <= k+1.
std::int64_t rough_part(std::int64_t n, std::int64_t k) {
  for (std::int64_t f = 2; f <= std::min(k + 1, n); ++f)
    while (n % f == 0) n /= f;
  return n;
}

// The block size with the shorter schedule.
std::int64_t choose_block(std::int64_t n, std::int64_t k) {
  const std::int64_t q = rough_part(n, k);
  const int split = SimpleBase(q, k).length() + HyperHypercube(n / q, k).length();
  return SimpleBase(n, k).length() < split ? n : q;
}

template <typename Rounds>
class BaseSchedule final : public Schedule {
 public:
  BaseSchedule(Rank n, std::int64_t k) : Schedule(n), rounds_(n, k) {}
  Step period() const override { return rounds_.length(); }
  std::optional<double> known_rho() const override { return 0; }

 private:
  void fill(Step step, Rank rank, Exchange& out) const override {
    const int round = static_cast<int>(step % rounds_.length());
    if constexpr (std::is_same_v<Rounds, SimpleBase>) {
      rounds_.fill(round, rank, 0, out);
    } else {
      rounds_.fill(round, rank, out);
    }
  }
  Rounds rounds_;
};

template <typename Rounds>
Family base_family(const std::string& name, const std::string& summary) {
  return {
      .name = name,
      .summary = summary,
      .parameters = {{"k", "1", "peers a round"}},
      .make = [](const Parameters& parameters, const TopologySetting& setting) -> std::shared_ptr<Schedule> {
        return std::make_shared<BaseSchedule<Rounds>>(setting.n, parameters.integer("k", 1, 1 << 16));
      },
      .changing = true};
}

}  // namespace

BaseRounds::BaseRounds(std::int64_t n, std::int64_t k) : block_(choose_block(n, k)), simple_(block_, k) {
  if (block_ != n) across_.emplace(n / block_, k);
}

void BaseRounds::fill(int round, std::int64_t index, Exchange& out) const {
  if (round < simple_.length()) {
    simple_.fill(round, index % block_, index / block_ * block_, out);
  } else {
    across_->fill(round - simple_.length(), index / block_, index % block_, block_, out);
  }
}

std::int64_t BaseRounds::pairs_before(int round, std::int64_t index) const {
  if (round < simple_.length())
    return index / block_ * simple_.pairs_before(round, block_) + simple_.pairs_before(round, index % block_);
  const int across = round - simple_.length();
  const std::int64_t whole = across_->pairs_before(across, index / block_);
  const bool lower = across_->pairs_before(across, index / block_ + 1) > whole;
  return whole * block_ + (lower ? index % block_ : 0);
}

Family simple_base() {
  return base_family<SimpleBase>("simple-base", "Simple Base-(k+1): exact for any n, at most k neighbors");
}
Family base() {
  return base_family<BaseRounds>("base", "Base-(k+1): exact for any n, at most k neighbors, fewer rounds");
}

}  // namespace starling::topology::family
