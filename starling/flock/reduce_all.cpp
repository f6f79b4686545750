#include "starling/flock/reduce_all.h"

#include <algorithm>
#include <cstring>

#include "starling/kernel/combine.h"
#include "starling/kernel/copy.h"

namespace starling::flock {
namespace {

constexpr std::size_t kShort = 32 << 10;  // bytes: below, two rounds cost more than reading everything
constexpr std::size_t kReduceChunk = 64 << 10;

}  // namespace

ReduceAll::ReduceAll(std::shared_ptr<FlockState> flock, Topic& topic, Pieces pieces, Reduction reduction,
                     Room own_slice)
    : Collective(own_slice ? MessageKind::scattered_reduction : MessageKind::reduction, std::move(flock),
                 topic),
      pieces_(std::move(pieces)),
      dtype_(pieces_[0].in.dtype),
      count_(total_count(pieces_)),
      reduction_(reduction),
      own_slice_(std::move(own_slice)) {}

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
    if (first < last) f(piece, (first - start) * size_of(dtype_), (last - first) * size_of(dtype_));
    start += piece.in.count;
  }
}

void ReduceAll::copy_in(Range range, std::byte* to) const {
  for_parts(range, [&](const Piece& piece, std::size_t offset, std::size_t bytes) {
    copy_bytes(to, piece.in.host_bytes() + offset, bytes);
    to += bytes;
  });
}

void ReduceAll::copy_out(Range range, const std::byte* from) const {
  for_parts(range, [&](const Piece& piece, std::size_t offset, std::size_t bytes) {
    copy_bytes(piece.out.host_bytes() + offset, from, bytes);
    from += bytes;
  });
}

void ReduceAll::begin() {
  const std::size_t bytes = count_ * size_of(dtype_);
  const std::size_t n = members().size();
  phase_ = 0;
  reduced_ = {};
  arrivals_.clear();
  sliced_ = n > 1 && (bytes > kShort || own_slice_);
  MessageHeader head = header_for(0, dtype_, count_);
  head.detail = layout_hash(static_cast<std::uint64_t>(reduction_), pieces_);
  if (sliced_) {
    post_slices(head);
  } else {
    const Outgoing message = flock_->fabric->reserve(bytes);
    copy_in({0, count_}, message.bytes().data());
    post_to_others(message, head);
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

// They lie in one block, from which this rank's own slice is left out.
void ReduceAll::post_slices(const MessageHeader& head) const {
  const std::size_t element = size_of(dtype_);
  const Range mine = slice(place());
  const Outgoing message = flock_->fabric->reserve((count_ - mine.count()) * element);
  std::byte* to = message.bytes().data();
  copy_in({0, mine.begin}, to);
  copy_in({mine.end, count_}, to + mine.begin * element);
  for (std::size_t at = 0; at < members().size(); ++at) {
    if (at == place()) continue;
    const Range theirs = slice(at);
    const std::size_t begin = theirs.begin - (at > place() ? mine.count() : 0);
    post_to(members()[at], {message, begin * element, theirs.count() * element}, head);
  }
}

// Through the cache, some elements at a time.
void ReduceAll::reduce_range(std::size_t count, std::byte* out,
                             const std::vector<const std::byte*>& blocks) const {
  const std::size_t element = size_of(dtype_);
  const std::size_t chunk = kReduceChunk / element;
  const bool sums = reduction_ == Reduction::sum || reduction_ == Reduction::average;
  const double weight = reduction_ == Reduction::average ? 1.0 / static_cast<double>(blocks.size()) : 1.0;
  std::vector<Term> terms(blocks.size());
  for (std::size_t done = 0; done < count; done += chunk) {
    const std::size_t now = std::min(chunk, count - done);
    std::byte* to = out + done * element;
    if (sums && is_floating(dtype_)) {
      for (std::size_t i = 0; i < blocks.size(); ++i) terms[i] = {blocks[i] + done * element, weight};
      combine(dtype_, to, terms, now, Store::cached);
    } else {
      std::memcpy(to, blocks[0] + done * element, now * element);
      for (std::size_t i = 1; i < blocks.size(); ++i)
        reduce(reduction_, dtype_, to, blocks[i] + done * element, now);
    }
  }
}

bool ReduceAll::go_on() {
  if (phase_++ > 0 || !sliced_) {
    arrivals_ = take_arrivals();
    return true;
  }
  const std::size_t element = size_of(dtype_);
  const Range mine = slice(place());
  // This rank's own part of its slice may be scattered over pieces.
  std::vector<std::byte> gathered;
  const std::byte* own = nullptr;
  for_parts(mine, [&](const Piece& piece, std::size_t offset, std::size_t bytes) {
    if (bytes == mine.count() * element) own = piece.in.host_bytes() + offset;
  });
  if (own == nullptr) {
    gathered.resize(mine.count() * element);
    copy_in(mine, gathered.data());
    own = gathered.data();
  }
  std::vector<const std::byte*> blocks;
  std::size_t next = 0;
  for (std::size_t at = 0; at < members().size(); ++at)
    blocks.push_back(at == place() ? own : awaited_[next++].arrival.bytes().data());
  reduced_ = flock_->fabric->reserve(mine.count() * element);
  reduce_range(mine.count(), reduced_.bytes().data(), blocks);
  awaited_.clear();
  if (own_slice_) return true;
  post_to_others(reduced_, header_for(1, dtype_, mine.count()));
  for (std::size_t at = 0; at < members().size(); ++at)
    if (at != place()) await(expectation_of(1, members()[at], dtype_, slice(at).count()));
  return false;
}

void ReduceAll::deliver() {
  const std::size_t element = size_of(dtype_);
  if (own_slice_) {
    const Range mine = slice(place());
    std::byte* to = own_slice_(mine.count()).host_bytes();
    if (members().size() == 1) {
      copy_in(mine, to);
    } else {
      copy_bytes(to, reduced_.bytes().data(), mine.count() * element);
    }
  } else if (sliced_) {
    std::size_t next = 0;
    for (std::size_t at = 0; at < members().size(); ++at)
      copy_out(slice(at), at == place() ? reduced_.bytes().data() : arrivals_[next++].bytes().data());
  } else {
    // All ranks' whole blocks, in parts: the result may overwrite this rank's own.
    std::vector<std::byte> own(std::min(count_ * element, kReduceChunk));
    std::vector<std::byte> result(own.size());
    const std::size_t chunk = kReduceChunk / element;
    for (std::size_t done = 0; done < count_; done += chunk) {
      const Range range{done, std::min(count_, done + chunk)};
      copy_in(range, own.data());
      std::vector<const std::byte*> blocks;
      std::size_t next = 0;
      for (std::size_t at = 0; at < members().size(); ++at)
        blocks.push_back(at == place() ? own.data() : arrivals_[next++].bytes().data() + done * element);
      reduce_range(range.count(), result.data(), blocks);
      copy_out(range, result.data());
    }
  }
  reduced_ = {};
  arrivals_.clear();
}

}  // namespace starling::flock
