#pragma once

#include <string>
#include <vector>

#include "starling/record/checkpoint_file.h"

namespace starling::record {

/// A small state with every kind of part: long, short, empty.
struct SmallState {
  std::vector<float> x;
  std::vector<std::int64_t> counters;
  std::vector<std::uint8_t> nothing;

  explicit SmallState(int seed) : x(50), counters(3, seed) {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(seed) + static_cast<float>(i) / 64;
  }
  std::vector<StatePart> parts() const {
    return {state_part<float>("x", x), state_part<std::int64_t>("counters", counters),
            state_part<std::uint8_t>("nothing", nothing)};
  }
  std::vector<StatePlace> places() {
    return {state_place<float>("x", x), state_place<std::int64_t>("counters", counters),
            state_place<std::uint8_t>("nothing", nothing)};
  }
  bool operator==(const SmallState&) const = default;
};

template <typename Body>
std::string error_of(const Body& body) {
  try {
    body();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

}  // namespace starling::record
