#pragma once

#include <memory>

#include "starling/fabric/outgoing.h"
#include "starling/flock/block.h"

namespace starling::fabric {
class Fabric;
}

namespace starling::flock {

/// Outgoing memory as elements: its owner writes it, then passes it to an operation, which posts it without a
/// copy. The destructor releases the memory. Its initial content is undefined.
template <typename E>
class Slot {
 public:
  Slot(std::shared_ptr<Fabric> fabric, Outgoing memory)
      : fabric_(std::move(fabric)), memory_(std::move(memory)) {}

  E* data() const { return reinterpret_cast<E*>(memory_.bytes().data()); }
  std::size_t size() const { return memory_.bytes().size() / sizeof(E); }
  E* begin() const { return data(); }
  E* end() const { return data() + size(); }
  E& operator[](std::size_t i) const { return data()[i]; }

  /// For operations.
  Outgoing memory() && { return std::move(memory_); }

 private:
  std::shared_ptr<Fabric> fabric_;  // outlives the memory
  Outgoing memory_;
};

}  // namespace starling::flock
