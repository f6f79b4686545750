#pragma once

#include <cstdint>
#include <string_view>

namespace starling::record {

/// The operation of a record. Up to `staged_reduction` the values equal those of MessageKind.
enum class RecordKind : std::uint8_t {
  receive = 0,
  send = 1,
  average,
  long_average,
  reduction,
  scattered_reduction,
  broadcast,
  gathering,
  neighbor_gathering,
  relay,
  staged_reduction,
  put = 64,  // this and the following: windows
  accumulate,
  get,
  update,
};

constexpr std::string_view name(RecordKind kind) {
  switch (kind) {
    case RecordKind::receive:
      return "receive";
    case RecordKind::send:
      return "send";
    case RecordKind::average:
    case RecordKind::long_average:
      return "neighbor average";
    case RecordKind::reduction:
    case RecordKind::staged_reduction:
      return "all-reduce";
    case RecordKind::scattered_reduction:
      return "reduce-scatter";
    case RecordKind::broadcast:
      return "broadcast";
    case RecordKind::gathering:
      return "all-gather";
    case RecordKind::neighbor_gathering:
      return "neighbor gather";
    case RecordKind::relay:
      return "relay";
    case RecordKind::put:
      return "put";
    case RecordKind::accumulate:
      return "accumulate";
    case RecordKind::get:
      return "get";
    case RecordKind::update:
      return "update";
  }
  return "operation";
}

}  // namespace starling::record
