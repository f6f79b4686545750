#pragma once

#include <span>

#include "starling/base/buffer.h"

namespace starling::kernel {

/// One summand of a weighted sum of blocks. Type and count are the result's.
struct Term {
  Term() = default;
  /// Elements in host memory.
  Term(const void* elements, double its_weight) : data(elements), weight(its_weight) {}
  Term(const ConstBuffer& elements, double its_weight)
      : data(elements.address()), weight(its_weight), memory(elements.memory) {}

  const void* data = nullptr;
  double weight = 0;
  MemoryKind memory = MemoryKind::host;
};
/// Throws InvalidArgument unless all terms lie in host memory.
inline void check_on_host(std::span<const Term> terms) {
  for (const Term& term : terms)
    if (term.memory != MemoryKind::host) throw_not_host_memory(term.memory);
}

}  // namespace starling::kernel

namespace starling {
using kernel::Term;
}  // namespace starling
