#include "starling/method/family/compressed_average.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <numeric>

#include "starling/codec/error_feedback.h"

namespace starling::method::family {
namespace {

/// The head of a message, in front of the encoded bytes.
struct Head {
  std::int64_t rank = -1;         // -1: no message has arrived
  std::int64_t contributors = 0;  // how many ranks contributed to the encoded bytes
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

/// The part of a segment that the m-th of `members` ranks averages.
struct Share {
  std::size_t begin;
  std::size_t count;
};
Share share_of(const Segment& segment, std::size_t m, std::size_t members) {
  const std::size_t first = segment.count * m / members;
  return {segment.begin + first, segment.count * (m + 1) / members - first};
}

std::size_t scattered_bytes(const Codec& codec, const Block& block, std::size_t m, std::size_t members) {
  std::size_t bytes = sizeof(Head);
  for (const Segment& segment : block.segments)
    bytes += codec.encoded_bytes(block.dtype(), {share_of(segment, m, members).count, 0});
  return bytes;
}

// The bytes of a message from `begin` on.
Buffer bytes_of(std::vector<std::byte>& bytes, std::size_t begin = 0) {
  return {DType::uint8, bytes.data() + begin, bytes.size() - begin};
}

Pieces whole(std::vector<std::byte>& bytes) {
  return {Block::in_place(bytes_of(bytes))};
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
  offsets_.push_back(bytes_);
}

void EncodedBlock::encode(const Block& block, ConstBuffer v, Buffer residual, std::uint64_t seed,
                          Buffer message) const {
  for (std::size_t i = 0; i < block.segments.size(); ++i) {
    const Segment& segment = block.segments[i];
    const ConstBuffer in = v.part(segment.begin, segment.count);
    const Buffer out = message.part(offsets_[i], offsets_[i + 1] - offsets_[i]);
    const CodecKey key = key_of(block, segment, seed);
    if (residual.address() == nullptr)
      codec_.encode(in, segment.rows, key, out);
    else
      encode_with_feedback(codec_, in, part_of(residual, segment), segment.rows, key, out);
  }
}

void EncodedBlock::decode_add(const Block& block, ConstBuffer message, double weight, Buffer v) const {
  for (std::size_t i = 0; i < block.segments.size(); ++i) {
    const Segment& segment = block.segments[i];
    codec_.decode_add(message.part(offsets_[i], offsets_[i + 1] - offsets_[i]), segment.rows, weight,
                      part_of(v, segment));
  }
}

void CompressedAverage::start(Block& block, Buffer v, bool takes_part) {
  Work& work = work_[&block];
  if (work.members.empty()) {
    work.members.resize(static_cast<std::size_t>(block.channel->size()));
    std::iota(work.members.begin(), work.members.end(), 0);
  }
  work.takes_part = takes_part;
  work.gathering = false;
  if (options_.algorithm == Algorithm::all_gather)
    start_all_gather(block, v, work);
  else
    scatter(block, v, work);
}

bool CompressedAverage::proceed(Block& block, Buffer v) {
  Work& work = work_[&block];
  if (options_.algorithm == Algorithm::all_gather) {
    finish_all_gather(block, v, work);
    return true;
  }
  if (work.gathering) return finish_scatter_gather(block, v, work);
  average_own_part(block, work);
  return false;
}

void CompressedAverage::start_all_gather(Block& block, Buffer v, Work& work) {
  const EncodedBlock encoded(*options_.codec, block);
  work.record.assign(sizeof(Head) + encoded.bytes(), {});
  write_head(work.record.data(), {block.channel->rank(), work.takes_part ? 1 : 0});
  const Buffer residual = options_.feedback ? block.state("residual") : Buffer();
  if (work.takes_part) encoded.encode(block, v, residual, options_.seed, bytes_of(work.record, sizeof(Head)));
  block.collective().gather(bytes_of(work.record), work.all);
}

void CompressedAverage::finish_all_gather(Block& block, Buffer v, Work& work) {
  const EncodedBlock encoded(*options_.codec, block);
  work.contributors = 0;
  for (std::size_t at = 0; at < work.all.size(); at += work.record.size())
    work.contributors += head_of(work.all.data() + at).contributors;
  if (work.contributors == 0) return;
  block.zero(v);
  for (std::size_t at = 0; at < work.all.size(); at += work.record.size())
    if (head_of(work.all.data() + at).contributors > 0)
      encoded.decode_add(block, bytes_of(work.all, at + sizeof(Head)), 1, v);
  block.arithmetic().divide(v, static_cast<double>(work.contributors));
}

// Sends every member its part of this rank's vector.
void CompressedAverage::scatter(Block& block, Buffer v, Work& work) {
  const Codec& codec = *options_.codec;
  const std::size_t members = work.members.size();
  const std::string tag = fmt::format("scatter/{}", work.attempts++);
  const Rank self = block.channel->rank();
  std::size_t own_bytes = 0;
  std::vector<std::byte> message;
  for (std::size_t m = 0; m < members; ++m) {
    message.assign(scattered_bytes(codec, block, m, members), {});
    write_head(message.data(), {self, work.takes_part ? 1 : 0});
    std::size_t at = sizeof(Head);
    for (const Segment& segment : block.segments) {
      const Share share = share_of(segment, m, members);
      if (work.takes_part)
        codec.encode(v.part(share.begin, share.count), 0, key_of(block, segment, options_.seed),
                     bytes_of(message, at));
      at += codec.encoded_bytes(block.dtype(), {share.count, 0});
    }
    if (work.members[m] == self) {
      own_bytes = message.size();
      work.scattered[self] = message;
    } else {
      block.collective().send(whole(message), work.members[m], tag);
    }
  }
  for (const Rank member : work.members) {
    if (member == self) continue;
    auto& message_in = work.scattered[member];
    message_in.assign(own_bytes, {});
    write_head(message_in.data(), {});
    block.collective().receive(whole(message_in), member, tag);
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
    if (const Head head = head_of(work.scattered[member].data()); head.rank >= 0)
      contributors += head.contributors;
  // All records are padded to the longest, so that the gathered bytes can be split.
  std::size_t longest = 0;
  for (std::size_t other = 0; other < members; ++other)
    longest = std::max(longest, scattered_bytes(codec, block, other, members));
  work.record.assign(longest, {});
  write_head(work.record.data(), {self, contributors});
  std::size_t at = sizeof(Head);
  std::size_t largest = 0;
  for (const Segment& segment : block.segments)
    largest = std::max(largest, share_of(segment, m, members).count);
  const OwnedBuffer memory(block.dtype(), largest, block.x.memory);
  for (const Segment& segment : block.segments) {
    const std::size_t count = share_of(segment, m, members).count;
    const Buffer sum = memory.buffer().part(0, count);
    block.zero(sum);
    for (const Rank member : work.members) {
      std::vector<std::byte>& message = work.scattered[member];
      if (const Head head = head_of(message.data()); head.rank < 0 || head.contributors == 0) continue;
      codec.decode_add(bytes_of(message, at), 0, 1, sum);
    }
    // Divided last, so that a tie of votes is exactly zero.
    if (contributors > 0) {
      block.arithmetic().divide(sum, static_cast<double>(contributors));
      codec.encode(sum, 0, key_of(block, segment, options_.seed + 1), bytes_of(work.record, at));
    }
    at += codec.encoded_bytes(block.dtype(), {count, 0});
  }
  work.gathering = true;
  block.collective().gather(bytes_of(work.record), work.all);
}

// If a rank dies after the scatter, its record is missing on all survivors: they scatter again.
bool CompressedAverage::finish_scatter_gather(Block& block, Buffer v, Work& work) {
  const Codec& codec = *options_.codec;
  std::map<Rank, std::size_t> records;  // where each begins
  for (std::size_t at = 0; at < work.all.size(); at += work.record.size())
    records[static_cast<Rank>(head_of(work.all.data() + at).rank)] = at;
  if (records.size() < work.members.size()) {
    work.members.clear();
    for (const auto& [rank, record] : records) work.members.push_back(rank);
    work.gathering = false;
    scatter(block, v, work);
    return false;
  }
  const std::size_t members = work.members.size();
  work.contributors = head_of(work.all.data() + records.begin()->second).contributors;
  for (const auto& [rank, record] : records)
    work.contributors = std::min(work.contributors, head_of(work.all.data() + record).contributors);
  if (work.contributors == 0) return true;
  for (std::size_t m = 0; m < members; ++m) {
    std::size_t at = records.at(work.members[m]) + sizeof(Head);
    for (const Segment& segment : block.segments) {
      const Share share = share_of(segment, m, members);
      codec.decode(bytes_of(work.all, at), 0, v.part(share.begin, share.count));
      at += codec.encoded_bytes(block.dtype(), {share.count, 0});
    }
  }
  return true;
}

}  // namespace starling::method::family
