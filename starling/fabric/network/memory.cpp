#include "starling/fabric/network/memory.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <fmt/format.h>

#include "starling/base/error.h"

namespace starling::fabric::network {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kMostKept = std::size_t{1} << 30;

// Eight sizes per power of two: coarse enough to recycle blocks, fine enough to waste little.
std::size_t rounded(std::size_t bytes) {
  const std::size_t step = std::max(kAlignment, std::bit_floor(bytes) / 8);
  return (std::max(bytes, std::size_t{1}) + step - 1) / step * step;
}

}  // namespace

Pool::Pool(std::size_t limit) : blocks_(std::make_shared<Blocks>()) {
  blocks_->limit = limit;
}

Pool::Blocks::~Blocks() {
  for (const auto& [size, unused] : free)
    for (std::byte* block : unused) std::free(block);
}

void Pool::Blocks::give_back(std::byte* block, std::size_t bytes) {
  {
    const std::lock_guard lock(mutex);
    used -= bytes;
    if (kept + bytes <= kMostKept) {
      kept += bytes;
      free[bytes].push_back(block);
      return;
    }
  }
  std::free(block);
}

Memory Pool::take(std::size_t bytes) {
  const std::size_t size = rounded(bytes);
  std::byte* block = nullptr;
  {
    const std::lock_guard lock(blocks_->mutex);
    if (blocks_->used + size > blocks_->limit) return nullptr;
    blocks_->used += size;
    if (const auto found = blocks_->free.find(size); found != blocks_->free.end() && !found->second.empty()) {
      block = found->second.back();
      found->second.pop_back();
      blocks_->kept -= size;
    }
  }
  if (block == nullptr) block = static_cast<std::byte*>(std::aligned_alloc(kAlignment, size));
  if (block == nullptr) {
    const std::lock_guard lock(blocks_->mutex);
    blocks_->used -= size;
    return nullptr;
  }
  return {block, [blocks = blocks_, size](std::byte* done) { blocks->give_back(done, size); }};
}

std::size_t Pool::used() const {
  const std::lock_guard lock(blocks_->mutex);
  return blocks_->used;
}

ExposedMemory::~ExposedMemory() {
  for (const std::uint64_t memory : taken_) std::free(reinterpret_cast<void*>(memory));
}

std::uint64_t ExposedMemory::take(std::size_t bytes) {
  const std::size_t size = rounded(bytes);
  void* memory = std::aligned_alloc(kAlignment, size);
  if (memory == nullptr) throw Error(fmt::format("no memory left for {} bytes of a window", bytes));
  std::memset(memory, 0, size);
  const std::lock_guard lock(mutex_);
  return *taken_.insert(reinterpret_cast<std::uint64_t>(memory)).first;
}

void ExposedMemory::give_back(std::uint64_t memory) {
  {
    const std::lock_guard lock(mutex_);
    if (taken_.erase(memory) == 0) return;
  }
  std::free(reinterpret_cast<void*>(memory));
}

}  // namespace starling::fabric::network
