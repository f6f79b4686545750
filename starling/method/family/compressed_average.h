#pragma once

#include <map>
#include <string>
#include <vector>

#include "starling/codec/codec.h"
#include "starling/method/block.h"

namespace starling::method::family {

/// The parameters of a block, one by one, in a message of a codec: where each begins.
class EncodedBlock {
 public:
  EncodedBlock(const Codec& codec, const Block& block);
  std::size_t bytes() const { return bytes_; }

  /// `residual`: with error feedback, a vector like v; else empty.
  void encode(const Block& block, ConstBuffer v, Buffer residual, std::uint64_t seed, Buffer message) const;
  /// v += weight * decoded.
  void decode_add(const Block& block, ConstBuffer message, double weight, Buffer v) const;

 private:
  const Codec& codec_;
  std::vector<std::size_t> offsets_;  // of the segments' messages, and the end
  std::size_t bytes_ = 0;
};

/// The key of a parameter's encoding: every rank, parameter and step draws numbers of its own.
CodecKey key_of(const Block& block, const Segment& segment, std::uint64_t seed);

/// The mean of everybody's vector of a block through messages of a codec, in rounds: start(), and proceed()
/// whenever what was started has arrived, until it says that the mean is there. Two ways: `gathered`, where
/// everybody sends the whole to everybody, and `dealt`, where each rank gets everybody's part of the vector,
/// averages it, encodes it again and sends it to all: two encodings, but 2 (n - 1) / n messages of one vector
/// per rank instead of n - 1. When somebody dies, the others begin anew without it.
class CompressedAverage {
 public:
  enum class Way { gathered, dealt };
  struct Options {
    CodecPtr codec;
    Way way = Way::gathered;
    bool feedback = false;  // of `gathered`: what an encoding leaves out goes into the next
    std::uint64_t seed = 0;
  };
  explicit CompressedAverage(Options options) : options_(std::move(options)) {}

  /// Who does not take part only listens.
  void start(Block& block, Buffer v, bool takes_part);
  /// True when v is the mean of those who took part; untouched when nobody did.
  bool proceed(Block& block, Buffer v);
  /// How many took part in the last one.
  std::int64_t contributors(const Block& block) const { return work_.at(&block).contributors; }

 private:
  struct Work {
    std::vector<Rank> members;  // among whom parts are dealt
    std::int64_t attempts = 0;
    bool takes_part = false;
    bool gathering = false;
    std::int64_t contributors = 0;
    std::map<Rank, std::vector<std::byte>> dealt;  // to this rank, by sender
    std::vector<std::byte> record;
    std::vector<std::byte> all;
  };

  void start_gathering(Block& block, Buffer v, Work& work);
  void finish_gathering(Block& block, Buffer v, Work& work);
  void deal(Block& block, Buffer v, Work& work);
  void average_own_part(Block& block, Work& work);
  bool finish_dealing(Block& block, Buffer v, Work& work);

  Options options_;
  std::map<const Block*, Work> work_;
};

}  // namespace starling::method::family
