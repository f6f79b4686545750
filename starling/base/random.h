#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>

#include "starling/base/floors.h"

namespace starling {

/// Philox 4x32-10 (Salmon et al., 2011): a pure function of (key, counter). All ranks draw the same numbers
/// for a step without communication, and any step can be computed directly.
constexpr std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter, std::uint64_t key) {
  auto k0 = static_cast<std::uint32_t>(key);
  auto k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53} * counter[0];
    const std::uint64_t p1 = std::uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<std::uint32_t>(p1 >> 32) ^ counter[1] ^ k0, static_cast<std::uint32_t>(p1),
               static_cast<std::uint32_t>(p0 >> 32) ^ counter[3] ^ k1, static_cast<std::uint32_t>(p0)};
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return counter;
}

/// A generator of the random numbers of (seed, position, stream). The position is usually a step; the stream
/// separates different uses of one seed. Cheap to construct.
class Random {
 public:
  constexpr Random(std::uint64_t seed, std::uint64_t position, std::uint32_t stream)
      : seed_(seed), position_(position), stream_(stream) {}

  constexpr std::uint64_t next() {
    if (have_spare_) {
      have_spare_ = false;
      return spare_;
    }
    const auto word = philox({static_cast<std::uint32_t>(position_),
                              static_cast<std::uint32_t>(position_ >> 32), block_++, stream_},
                             seed_);
    spare_ = (std::uint64_t{word[3]} << 32) | word[2];
    have_spare_ = true;
    return (std::uint64_t{word[1]} << 32) | word[0];
  }

  /// Uniform on 0 .. bound-1 for bound < 2^32; the bias of one multiplication is below 2^-32.
  constexpr std::uint32_t below(std::uint32_t bound) {
    const std::uint64_t word = next();
    const std::uint64_t high = word >> 32;
    const std::uint64_t low = word & 0xFFFFFFFF;
    return static_cast<std::uint32_t>((high * bound + ((low * bound) >> 32)) >> 32);  // word * bound / 2^64
  }

  /// Uniform on [0, 1) with 53 bits.
  constexpr double uniform() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }

  /// Standard normal, by Box and Muller.
  double normal() {
    const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform()));
    return radius * std::cos(2.0 * std::numbers::pi * uniform());
  }

 private:
  std::uint64_t seed_;
  std::uint64_t position_;
  std::uint32_t stream_;
  std::uint32_t block_ = 0;
  std::uint64_t spare_ = 0;
  bool have_spare_ = false;
};

/// The streams in use; a new use takes a new number.
namespace stream {
inline constexpr std::uint32_t kEquiDyn = 1;
inline constexpr std::uint32_t kEquiStatic = 2;
inline constexpr std::uint32_t kOnePeer = 3;
inline constexpr std::uint32_t kPermutation = 4;
inline constexpr std::uint32_t kErdosRenyi = 5;
inline constexpr std::uint32_t kMatcha = 6;
inline constexpr std::uint32_t kConsensusStart = 7;
inline constexpr std::uint32_t kAnalysis = 8;
inline constexpr std::uint32_t kPartition = 9;
inline constexpr std::uint32_t kEpochOrder = 10;
inline constexpr std::uint32_t kReshard = 11;
inline constexpr std::uint32_t kSynthetic = 12;  // three: patterns, training images, test images
inline constexpr std::uint32_t kProxSkip = 15;
inline constexpr std::uint32_t kPairGossip = 16;
inline constexpr std::uint32_t kPowerSgd = 17;
inline constexpr std::uint32_t kObjective = 20;      // shared by all nodes: solutions, spectra, class centers
inline constexpr std::uint32_t kObjectiveNode = 21;  // a node's own data
inline constexpr std::uint32_t kObjectiveBatch = 22;  // the samples that a node uses in a step
inline constexpr std::uint32_t kStraggler = 23;
inline constexpr std::uint32_t kSimulatedDrop = 24;
inline constexpr std::uint32_t kFaults = 0x80000000;  // from here on, one stream per pair of ranks
}  // namespace stream

}  // namespace starling
