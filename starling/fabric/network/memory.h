#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "starling/base/floors.h"

namespace starling::fabric::network {

/// Memory of a message, shared by its senders and readers.
using Memory = std::shared_ptr<std::byte>;

/// A part of such memory.
struct Slice {
  Memory memory;
  std::size_t offset = 0;
  std::size_t bytes = 0;

  std::byte* data() const { return memory.get() + offset; }
};

/// Recycles memory of messages, because fresh pages cost more than sending their contents. Owned by the
/// network fabric. Thread-safe; memory may outlive the pool.
class Pool {
 public:
  explicit Pool(std::size_t limit);

  /// Empty if the limit is reached.
  Memory take(std::size_t bytes);
  std::size_t used() const;
  std::size_t limit() const { return blocks_->limit; }

 private:
  struct Blocks {
    ~Blocks();
    void give_back(std::byte* block, std::size_t bytes);

    std::size_t limit = 0;
    std::mutex mutex;
    std::map<std::size_t, std::vector<std::byte*>> free;  // by size
    std::size_t used = 0;
    std::size_t kept = 0;  // free bytes
  };
  std::shared_ptr<Blocks> blocks_;
};

/// Zeroed memory that a rank exposes (see Fabric::expose); its handle is its address. Owned by the network
/// fabric. Thread-safe.
class ExposedMemory {
 public:
  ExposedMemory() = default;
  ~ExposedMemory();
  ExposedMemory(const ExposedMemory&) = delete;
  ExposedMemory& operator=(const ExposedMemory&) = delete;

  std::uint64_t take(std::size_t bytes);
  void give_back(std::uint64_t memory);

 private:
  std::mutex mutex_;
  std::set<std::uint64_t> taken_;
};

}  // namespace starling::fabric::network
