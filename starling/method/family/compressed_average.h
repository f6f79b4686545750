#pragma once

#include <map>
#include <string>
#include <vector>

#include "starling/codec/codec.h"
#include "starling/method/block.h"

namespace starling::method::family {

/// Encodes and decodes the parameters of a block, one by one, as one message of a codec.
class EncodedBlock {
 public:
  EncodedBlock(const Codec& codec, const Block& block);
  std::size_t bytes() const { return bytes_; }

  /// `residual`: a vector like v for error feedback; otherwise empty.
  void encode(const Block& block, ConstBuffer v, Buffer residual, std::uint64_t seed, Buffer message) const;
  /// v += weight * decoded.
  void decode_add(const Block& block, ConstBuffer message, double weight, Buffer v) const;

 private:
  const Codec& codec_;
  std::vector<std::size_t> offsets_;  // of the segments' messages, and the end
  std::size_t bytes_ = 0;
};

/// The key of a parameter's encoding: every rank, parameter and step draws different random numbers.
CodecKey key_of(const Block& block, const Segment& segment, std::uint64_t seed);

/// The mean of all ranks' vectors of a block through messages of a codec, in rounds: call start(), then
/// proceed() whenever the started operations have finished, until it returns true. Two algorithms: with
/// `all_gather` every rank sends its whole vector to all; with `scatter_gather` each rank receives its part
/// of all vectors, averages it, encodes it again and sends it to all, which means two encodings but 2 (n - 1)
/// / n messages of one vector per rank instead of n - 1. When a rank dies, the others start again without it.
class CompressedAverage {
 public:
  enum class Algorithm { all_gather, scatter_gather };
  struct Options {
    CodecPtr codec;
    Algorithm algorithm = Algorithm::all_gather;
    bool feedback = false;  // for all_gather: adds the encoding error to the next message
    std::uint64_t seed = 0;
  };
  explicit CompressedAverage(Options options) : options_(std::move(options)) {}

  /// With `takes_part` false, this rank only receives the mean.
  void start(Block& block, Buffer v, bool takes_part);
  /// True when v is the mean over the ranks that took part; v is unchanged if none did.
  bool proceed(Block& block, Buffer v);
  /// How many ranks took part in the last mean.
  std::int64_t contributors(const Block& block) const { return work_.at(&block).contributors; }

 private:
  struct Work {
    std::vector<Rank> members;  // each averages one part
    std::int64_t attempts = 0;
    bool takes_part = false;
    bool gathering = false;
    std::int64_t contributors = 0;
    std::map<Rank, std::vector<std::byte>> scattered;  // the messages to this rank, by sender
    std::vector<std::byte> record;
    std::vector<std::byte> all;
  };

  void start_all_gather(Block& block, Buffer v, Work& work);
  void finish_all_gather(Block& block, Buffer v, Work& work);
  void scatter(Block& block, Buffer v, Work& work);
  void average_own_part(Block& block, Work& work);
  bool finish_scatter_gather(Block& block, Buffer v, Work& work);

  Options options_;
  std::map<const Block*, Work> work_;
};

}  // namespace starling::method::family
