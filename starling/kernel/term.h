#pragma once

#include <span>

#include "starling/base/buffer.h"
#include "starling/kernel/flag.h"

namespace starling::kernel {

/// One summand of a weighted sum of blocks. Its type and count are those of the result.
struct Term {
  Term() = default;
  /// A term in host memory.
  Term(const void* elements, double its_weight) : data(elements), weight(its_weight) {}
  Term(const ConstBuffer& elements, double its_weight)
      : data(elements.address()), weight(its_weight), memory(elements.memory) {}

  const void* data = nullptr;
  double weight = 0;
  MemoryKind memory = MemoryKind::host;
  /// For a term in device memory whose message may not have arrived: the device waits until `flag` has
  /// reached `number`. If the sender dies before that, the term is left out and the sum's first term without
  /// a flag gets its weight (but see `required`).
  const Flag* flag = nullptr;
  std::uint32_t number = 0;
  /// If this term does not arrive, the sum is NaN instead: collectives have no result without it.
  bool required = false;
};
/// Throws InvalidArgument unless all terms are in host memory.
inline void check_on_host(std::span<const Term> terms) {
  for (const Term& term : terms)
    if (term.memory != MemoryKind::host) throw_not_host_memory(term.memory);
}

}  // namespace starling::kernel

namespace starling {
using kernel::Term;
}  // namespace starling
