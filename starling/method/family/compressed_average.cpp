#include "starling/method/family/compressed_average.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <numeric>

#include "starling/codec/error_feedback.h"
#include "starling/kernel/average.h"

namespace starling::methods {
namespace {

/// What comes before the encoded bytes of a message.
struct Head {
  std::int64_t rank = -1;         // -1: nothing has come
  std::int64_t contributors = 0;  // in what follows
};
static_assert(sizeof(Head) % 8 == 0);

Head head_of(const std::byte* message) {
  Head head;
  std::memcpy(&head, message, sizeof head);
  return head;
}

void write_head(std::byte* message, const Head& head) {
  std::memcpy(message, &head, sizeof head);
}

CodecShape shape_of(const Segment& segment) {
  return {segment.count, segment.rows};
}

/// The part of a segment that is dealt to the m-th of `members`.
struct Share {
  std::size_t begin;
  std::size_t count;
};
Share share_of(const Segment& segment, std::size_t m, std::size_t members) {
  const std::size_t first = segment.count * m / members;
  return {segment.begin + first, segment.count * (m + 1) / members - first};
}

std::size_t dealt_bytes(const Codec& codec, const Block& block, std::size_t m, std::size_t members) {
  std::size_t bytes = sizeof(Head);
  for (const Segment& segment : block.segments)
    bytes += codec.encoded_bytes(block.dtype(), {share_of(segment, m, members).count, 0});
  return bytes;
}

Pieces whole(std::vector<std::byte>& bytes) {
  return {{{DType::uint8, bytes.data(), bytes.size()}, bytes.data(), 0}};
}

}  // namespace

CodecKey key_of(const Block& block, const Segment& segment, std::uint64_t seed) {
  return {seed, static_cast<std::uint64_t>(block.channel->rank()) + (segment.id << 32), block.step};
}

EncodedBlock::EncodedBlock(const Codec& codec, const Block& block) : codec_(codec) {
  for (const Segment& segment : block.segments) {
    offsets_.push_back(bytes_);
    bytes_ += codec.encoded_bytes(block.dtype(), shape_of(segment));
  }
}

void EncodedBlock::encode(const Block& block, const void* v, void* residual, std::uint64_t seed,
                          std::byte* out) const {
  const std::size_t element = size_of(block.dtype());
  for (std::size_t i = 0; i < block.segments.size(); ++i) {
    const Segment& segment = block.segments[i];
    const std::size_t at = segment.begin * element;
    const auto* in = static_cast<const std::byte*>(v) + at;
    const CodecKey key = key_of(block, segment, seed);
    if (residual == nullptr)
      codec_.encode(block.dtype(), in, shape_of(segment), key, out + offsets_[i]);
    else
      encode_with_feedback(codec_, block.dtype(), in, static_cast<std::byte*>(residual) + at,
                           shape_of(segment), key, out + offsets_[i]);
  }
}

void EncodedBlock::decode_add(const Block& block, const std::byte* in, double weight, void* v) const {
  for (std::size_t i = 0; i < block.segments.size(); ++i) {
    const Segment& segment = block.segments[i];
    codec_.decode_add(block.dtype(), in + offsets_[i], shape_of(segment), weight,
                      static_cast<std::byte*>(v) + segment.begin * size_of(block.dtype()));
  }
}

void CompressedAverage::start(Block& block, MutableBlock v, bool takes_part) {
  Work& work = work_[&block];
  if (work.members.empty()) {
    work.members.resize(static_cast<std::size_t>(block.channel->size()));
    std::iota(work.members.begin(), work.members.end(), 0);
  }
  work.takes_part = takes_part;
  work.gathering = false;
  if (options_.way == Way::gathered)
    start_gathering(block, v, work);
  else
    deal(block, v, work);
}

bool CompressedAverage::proceed(Block& block, MutableBlock v) {
  Work& work = work_[&block];
  if (options_.way == Way::gathered) {
    finish_gathering(block, v, work);
    return true;
  }
  if (work.gathering) return finish_dealing(block, v, work);
  average_own_part(block, work);
  return false;
}

void CompressedAverage::start_gathering(Block& block, MutableBlock v, Work& work) {
  const EncodedBlock encoded(*options_.codec, block);
  work.record.assign(sizeof(Head) + encoded.bytes(), {});
  write_head(work.record.data(), {block.channel->rank(), work.takes_part ? 1 : 0});
  void* residual = options_.feedback ? block.state("residual").data : nullptr;
  if (work.takes_part)
    encoded.encode(block, v.data, residual, options_.seed, work.record.data() + sizeof(Head));
  block.channel->gather({DType::uint8, work.record.data(), work.record.size()}, work.all);
}

void CompressedAverage::finish_gathering(Block& block, MutableBlock v, Work& work) {
  const EncodedBlock encoded(*options_.codec, block);
  work.contributors = 0;
  for (std::size_t at = 0; at < work.all.size(); at += work.record.size())
    work.contributors += head_of(work.all.data() + at).contributors;
  if (work.contributors == 0) return;
  std::memset(v.data, 0, ConstBlock(v).bytes());
  for (std::size_t at = 0; at < work.all.size(); at += work.record.size())
    if (head_of(work.all.data() + at).contributors > 0)
      encoded.decode_add(block, work.all.data() + at + sizeof(Head), 1, v.data);
  divide(block.dtype(), v.data, static_cast<double>(work.contributors), block.count());
}

// Everybody sends every member its part.
void CompressedAverage::deal(Block& block, MutableBlock v, Work& work) {
  const Codec& codec = *options_.codec;
  const std::size_t element = size_of(block.dtype());
  const std::size_t members = work.members.size();
  const std::string tag = fmt::format("deal/{}", work.attempts++);
  const Rank self = block.channel->rank();
  std::size_t own_bytes = 0;
  std::vector<std::byte> message;
  for (std::size_t m = 0; m < members; ++m) {
    message.assign(dealt_bytes(codec, block, m, members), {});
    write_head(message.data(), {self, work.takes_part ? 1 : 0});
    std::byte* out = message.data() + sizeof(Head);
    for (const Segment& segment : block.segments) {
      const Share share = share_of(segment, m, members);
      if (work.takes_part)
        codec.encode(block.dtype(), static_cast<const std::byte*>(v.data) + share.begin * element,
                     {share.count, 0}, key_of(block, segment, options_.seed), out);
      out += codec.encoded_bytes(block.dtype(), {share.count, 0});
    }
    if (work.members[m] == self) {
      own_bytes = message.size();
      work.dealt[self] = message;
    } else {
      block.channel->send(whole(message), work.members[m], tag);
    }
  }
  for (const Rank member : work.members) {
    if (member == self) continue;
    auto& place = work.dealt[member];
    place.assign(own_bytes, {});
    write_head(place.data(), {});
    block.channel->receive(whole(place), member, tag);
  }
}

void CompressedAverage::average_own_part(Block& block, Work& work) {
  const Codec& codec = *options_.codec;
  const Rank self = block.channel->rank();
  const std::size_t members = work.members.size();
  const auto m = static_cast<std::size_t>(std::find(work.members.begin(), work.members.end(), self) -
                                          work.members.begin());
  std::int64_t contributors = 0;
  for (const Rank member : work.members)
    if (const Head head = head_of(work.dealt[member].data()); head.rank >= 0)
      contributors += head.contributors;
  // All records are as long as the longest, so that they can be told apart.
  std::size_t longest = 0;
  for (std::size_t other = 0; other < members; ++other)
    longest = std::max(longest, dealt_bytes(codec, block, other, members));
  work.record.assign(longest, {});
  write_head(work.record.data(), {self, contributors});
  std::size_t at = sizeof(Head);
  std::vector<std::byte> sum;
  for (const Segment& segment : block.segments) {
    const std::size_t count = share_of(segment, m, members).count;
    sum.assign(count * size_of(block.dtype()), {});
    for (const Rank member : work.members) {
      const std::byte* message = work.dealt[member].data();
      if (const Head head = head_of(message); head.rank < 0 || head.contributors == 0) continue;
      codec.decode_add(block.dtype(), message + at, {count, 0}, 1, sum.data());
    }
    // Divided at last: a tie of votes is exactly zero.
    if (contributors > 0) {
      divide(block.dtype(), sum.data(), static_cast<double>(contributors), count);
      codec.encode(block.dtype(), sum.data(), {count, 0}, key_of(block, segment, options_.seed + 1),
                   work.record.data() + at);
    }
    at += codec.encoded_bytes(block.dtype(), {count, 0});
  }
  work.gathering = true;
  block.channel->gather({DType::uint8, work.record.data(), work.record.size()}, work.all);
}

// Who has died after it was dealt a part leaves a gap, which all survivors see: they deal anew.
bool CompressedAverage::finish_dealing(Block& block, MutableBlock v, Work& work) {
  const Codec& codec = *options_.codec;
  std::map<Rank, const std::byte*> records;
  for (std::size_t at = 0; at < work.all.size(); at += work.record.size())
    records[static_cast<Rank>(head_of(work.all.data() + at).rank)] = work.all.data() + at;
  if (records.size() < work.members.size()) {
    work.members.clear();
    for (const auto& [rank, record] : records) work.members.push_back(rank);
    work.gathering = false;
    deal(block, v, work);
    return false;
  }
  const std::size_t members = work.members.size();
  work.contributors = head_of(records.begin()->second).contributors;
  for (const auto& [rank, record] : records)
    work.contributors = std::min(work.contributors, head_of(record).contributors);
  if (work.contributors == 0) return true;
  for (std::size_t m = 0; m < members; ++m) {
    const std::byte* in = records.at(work.members[m]) + sizeof(Head);
    for (const Segment& segment : block.segments) {
      const Share share = share_of(segment, m, members);
      codec.decode(block.dtype(), in, {share.count, 0},
                   static_cast<std::byte*>(v.data) + share.begin * size_of(block.dtype()));
      in += codec.encoded_bytes(block.dtype(), {share.count, 0});
    }
  }
  return true;
}

}  // namespace starling::methods
