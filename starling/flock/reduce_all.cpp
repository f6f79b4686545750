#include "starling/flock/reduce_all.h"

#include <algorithm>

#include "starling/flock/memory_check.h"
#include "starling/kernel/arithmetic.h"

namespace starling::flock {
namespace {

// bytes: for shorter blocks two rounds cost more than reading all blocks
constexpr std::size_t kShort = 32 << 10;
constexpr std::size_t kReduceChunk = 64 << 10;

}  // namespace

ReduceAll::ReduceAll(std::shared_ptr<FlockState> flock, Topic& topic, Pieces pieces, Reduction reduction,
                     Room own_slice)
    : Collective(own_slice ? MessageKind::scattered_reduction : MessageKind::reduction, std::move(flock),
                 topic, pieces[0].in.memory),
      pieces_(std::move(pieces)),
      dtype_(pieces_[0].in.dtype),
      count_(total_count(pieces_)),
      reduction_(reduction),
      own_slice_(std::move(own_slice)) {
  if (sums_terms()) leave_payloads_to_device(memory());
}

bool ReduceAll::sums_terms() const {
  return (reduction_ == Reduction::sum || reduction_ == Reduction::average) && is_floating(dtype_);
}

ReduceAll::Range ReduceAll::slice(std::size_t at) const {
  const std::size_t n = members().size();
  return {count_ * at / n, count_ * (at + 1) / n};
}

template <typename F>
void ReduceAll::for_parts(Range range, const F& f) const {
  std::size_t start = 0;
  for (const Piece& piece : pieces_) {
    const std::size_t first = std::max(range.begin, start);
    const std::size_t last = std::min(range.end, start + piece.in.count);
    if (first < last) f(piece, first - start, last - first, first - range.begin);
    start += piece.in.count;
  }
}

void ReduceAll::copy_in(Range range, Buffer to) const {
  for_parts(range, [&](const Piece& piece, std::size_t first, std::size_t count, std::size_t before) {
    arithmetic_in(memory()).copy(to.part(before, count), piece.in.part(first, count));
  });
}

void ReduceAll::copy_out(Range range, const Arrival& from) const {
  for_parts(range, [&](const Piece& piece, std::size_t first, std::size_t count, std::size_t before) {
    copy_term(piece.out.part(first, count), term_of(from, dtype_, count, before * size_of(dtype_)));
  });
}
void ReduceAll::copy_out(Range range, ConstBuffer from) const {
  for_parts(range, [&](const Piece& piece, std::size_t first, std::size_t count, std::size_t before) {
    arithmetic_in(memory()).copy(piece.out.part(first, count), from.part(before, count));
  });
}

void ReduceAll::begin() {
  const std::size_t bytes = count_ * size_of(dtype_);
  const std::size_t n = members().size();
  phase_ = 0;
  sent_ = {};
  reduced_ = {};
  arrivals_.clear();
  sliced_ = n > 1 && (bytes > kShort || own_slice_);
  MessageHeader head = header_for(0, dtype_, count_);
  head.detail = layout_hash(static_cast<std::uint64_t>(reduction_), pieces_);
  if (sliced_) {
    post_slices(head);
  } else {
    sent_ = reserve(bytes);
    copy_in({0, count_}, sent_.buffer(dtype_, count_));
    post_to_others(sent_, head);
  }
  for (const Rank member : members()) {
    if (member == flock_->self()) continue;
    Expectation expected = expectation_of(0, member, dtype_, count_);
    expected.detail_means = pieces_.size() == 1 ? Detail::reduction : Detail::layout;
    expected.detail = head.detail;
    if (sliced_) expected.bytes = slice(place()).count() * size_of(dtype_);
    await(expected);
  }
}

// All slices are in one block, which leaves out this rank's own slice.
void ReduceAll::post_slices(const MessageHeader& head) const {
  const std::size_t element = size_of(dtype_);
  const Range mine = slice(place());
  const std::size_t others = count_ - mine.count();
  const Outgoing message = reserve(others * element);
  const Buffer block = message.buffer(dtype_, others);
  copy_in({0, mine.begin}, block.part(0, mine.begin));
  copy_in({mine.end, count_}, block.part(mine.begin, count_ - mine.end));
  for (std::size_t at = 0; at < members().size(); ++at) {
    if (at == place()) continue;
    const Range theirs = slice(at);
    const std::size_t begin = theirs.begin - (at > place() ? mine.count() : 0);
    post_to(members()[at], {message, begin * element, theirs.count() * element}, head);
  }
}

std::vector<Term> ReduceAll::blocks(ConstBuffer own, std::size_t first) const {
  std::vector<Term> all;
  for (const Arrival& arrival : arrivals_) {
    if (all.size() == place()) all.emplace_back(own, 1);
    all.push_back(term_of(arrival, dtype_, own.count, first * size_of(dtype_)));
  }
  if (all.size() == place()) all.emplace_back(own, 1);
  return all;
}

// On the host in short runs that fit the cache.
void ReduceAll::reduce_into(Buffer out, std::vector<Term> blocks) const {
  const Arithmetic& arithmetic = arithmetic_in(memory());
  const std::size_t chunk = out.on_host() ? kReduceChunk / size_of(dtype_) : out.count;
  const double weight = reduction_ == Reduction::average ? 1.0 / static_cast<double>(blocks.size()) : 1.0;
  for (Term& block : blocks) block.weight = weight;
  for (std::size_t done = 0; done < out.count; done += chunk) {
    const Buffer to = out.part(done, std::min(chunk, out.count - done));
    if (sums_terms()) {
      arithmetic.combine(to, blocks);
    } else {
      arithmetic.copy(to, to.at(blocks[0].data));
      for (std::size_t i = 1; i < blocks.size(); ++i)
        arithmetic.reduce(reduction_, to, to.at(blocks[i].data));
    }
    for (Term& block : blocks) block.data = static_cast<const std::byte*>(block.data) + to.bytes();
  }
}

bool ReduceAll::go_on() {
  arrivals_ = take_arrivals();
  if (phase_++ > 0 || !sliced_) return true;
  const Range mine = slice(place());
  reduced_ = reserve(mine.count() * size_of(dtype_));
  const Buffer result = reduced_.buffer(dtype_, mine.count());
  // The pieces may scatter this rank's own part of its slice.
  for_parts(mine, [&](const Piece& piece, std::size_t first, std::size_t count, std::size_t before) {
    reduce_into(result.part(before, count), blocks(piece.in.part(first, count), before));
  });
  arrivals_.clear();
  if (own_slice_) return true;
  post_to_others(reduced_, header_for(1, dtype_, mine.count()));
  for (std::size_t at = 0; at < members().size(); ++at)
    if (at != place()) await(expectation_of(1, members()[at], dtype_, slice(at).count()));
  return false;
}

void ReduceAll::deliver() {
  if (own_slice_) {
    const Range mine = slice(place());
    const Buffer out = room_for(own_slice_, mine.count(), pieces_[0].in, described());
    if (members().size() == 1)
      copy_in(mine, out);
    else
      arithmetic_in(memory()).copy(out, reduced_.buffer(dtype_, mine.count()));
  } else if (sliced_) {
    std::size_t next = 0;
    for (std::size_t at = 0; at < members().size(); ++at) {
      const Range range = slice(at);
      if (at == place())
        copy_out(range, reduced_.buffer(dtype_, range.count()));
      else
        copy_out(range, arrivals_[next++]);
    }
  } else {
    // This rank's own block is read from its outgoing memory, because the result may overwrite the input.
    for_parts({0, count_}, [&](const Piece& piece, std::size_t, std::size_t count, std::size_t before) {
      reduce_into(piece.out, blocks(sent_.buffer(dtype_, count, before * size_of(dtype_)), before));
    });
  }
  sent_ = {};
  reduced_ = {};
  arrivals_.clear();
}

}  // namespace starling::flock
