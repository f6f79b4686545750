#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

namespace starling::network {

/// Memory of a message, kept by everybody who still sends or reads it.
using Memory = std::shared_ptr<std::byte>;

/// A part of it.
struct Slice {
  Memory memory;
  std::size_t offset = 0;
  std::size_t bytes = 0;

  std::byte* data() const { return memory.get() + offset; }
};

/// Memory for messages, used again and again: fresh pages cost more than sending what they hold. Thread-safe;
/// what it gave may outlive it.
class Pool {
 public:
  explicit Pool(std::size_t limit);

  /// Empty where the limit is reached.
  Memory take(std::size_t bytes);
  std::size_t used() const;
  std::size_t limit() const { return shelf_->limit; }

 private:
  struct Shelf {
    ~Shelf();
    void give_back(std::byte* block, std::size_t bytes);

    std::size_t limit = 0;
    std::mutex mutex;
    std::map<std::size_t, std::vector<std::byte*>> free;  // by size
    std::size_t used = 0;
    std::size_t kept = 0;  // free bytes
  };
  std::shared_ptr<Shelf> shelf_;
};

/// Zeroed memory that a rank exposes: here it is called by its address. Thread-safe.
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

}  // namespace starling::network
