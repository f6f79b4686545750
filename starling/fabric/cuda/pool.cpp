#include "starling/fabric/cuda/pool.h"

#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "starling/base/error.h"
#include "starling/base/forks.h"
#include "starling/fabric/cuda/watcher.h"
#include "starling/fabric/local/region.h"
#include "starling/kernel/device.h"

namespace starling::fabric::cuda {
namespace {

constexpr std::size_t kBlockAlignment = 256;
constexpr std::size_t kPieceOfBlocks = std::size_t{2} << 20;  // what small blocks share: a GPU's own unit
constexpr std::chrono::seconds kTakesDescriptors{10};
constexpr std::chrono::milliseconds kShortly{1};

/// The device on which a pool was opened, whatever the calling thread's is by now.
class OnDeviceOfPool {
 public:
  explicit OnDeviceOfPool(int device)
      : scope_(device == kernel::device_context().device ? kernel::device_context()
                                                         : kernel::DeviceContext{device, nullptr}) {}

 private:
  kernel::DeviceScope scope_;
};

class CudaPool final : public DevicePool {
 public:
  CudaPool(Fabric& fabric, DescriptorExchange& exchange, BorrowedPieces& borrowed, std::uint32_t number,
           std::size_t block_bytes)
      : fabric_(fabric),
        exchange_(exchange),
        borrowed_(borrowed),
        number_(number),
        stride_((block_bytes + kBlockAlignment - 1) / kBlockAlignment * kBlockAlignment),
        blocks_per_piece_(std::max<std::size_t>(1, kPieceOfBlocks / stride_)) {}
  ~CudaPool() override;

  std::uint32_t number() const override { return number_; }
  void connect(const std::map<Rank, std::uint32_t>& peers, Deadline deadline) override;
  void prepare(std::span<const Rank> readers) override;
  std::uint64_t take(std::span<const Rank> readers) override;
  std::byte* find(Rank owner, std::uint64_t block) override;

 private:
  struct Piece {
    kernel::Device::SharedMemory memory;
    std::set<Rank> readers{};  // that have its descriptor
  };
  struct Mapping {
    std::byte* address = nullptr;
    std::size_t bytes = 0;
  };

  void add_piece();
  void lend_last_piece(std::span<const Rank> readers);
  Mapping map(Rank owner, std::uint32_t piece);

  const int forks_ = forks_so_far();
  const int device_ = kernel::device_context().device;
  Fabric& fabric_;
  DescriptorExchange& exchange_;
  BorrowedPieces& borrowed_;
  const std::uint32_t number_;
  const std::size_t stride_;
  const std::size_t blocks_per_piece_;
  std::vector<Piece> pieces_;
  std::uint64_t taken_ = 0;                                   // blocks
  std::map<Rank, std::uint32_t> peers_;                       // their pools' numbers
  std::map<std::pair<Rank, std::uint32_t>, Mapping> mapped_;  // by owner and piece
};

CudaPool::~CudaPool() {
  if (forks_so_far() != forks_) return;  // a forked child: the memory is its parent's
  try {
    const OnDeviceOfPool here(device_);
    for (const Piece& piece : pieces_)
      kernel::device().release_shared(piece.memory.address, piece.memory.bytes);
    for (const auto& [name, mapping] : mapped_)
      kernel::device().release_shared(mapping.address, mapping.bytes);
    exchange_.receive();  // what was lent and never looked for
    for (const auto& [peer, pool] : peers_) borrowed_.forget(peer, pool);
  } catch (...) {
    // The device is gone, and its memory with it.
  }
}

void CudaPool::connect(const std::map<Rank, std::uint32_t>& peers, Deadline deadline) {
  peers_ = peers;
  for (const auto& [peer, pool] : peers)
    while (!exchange_.connected(peer) && fabric_.alive(peer)) {
      if (std::chrono::steady_clock::now() > deadline)
        throw Error(fmt::format("rank {} has not asked rank {} for access to its device memory", peer,
                                fabric_.rank()));
      std::this_thread::sleep_for(kShortly);
    }
}

void CudaPool::prepare(std::span<const Rank> readers) {
  if (pieces_.empty()) add_piece();
  lend_last_piece(readers);
}

std::uint64_t CudaPool::take(std::span<const Rank> readers) {
  if (taken_ == pieces_.size() * blocks_per_piece_) add_piece();
  lend_last_piece(readers);
  const std::uint64_t block = taken_++;
  if (taken_ == pieces_.size() * blocks_per_piece_) pieces_.back().memory.descriptor.reset();
  return block;
}

void CudaPool::add_piece() {
  const OnDeviceOfPool here(device_);
  pieces_.push_back({kernel::device().create_shared(stride_ * blocks_per_piece_)});
}

// Sends the piece's descriptors to all readers before they need it, so that later no reader has to ask this
// rank.
void CudaPool::lend_last_piece(std::span<const Rank> readers) {
  Piece& piece = pieces_.back();
  const LentPiece name{number_, static_cast<std::uint32_t>(pieces_.size() - 1), piece.memory.bytes};
  for (const Rank reader : readers) {
    if (reader == fabric_.rank() || piece.readers.contains(reader)) continue;
    const auto until = std::chrono::steady_clock::now() + kTakesDescriptors;
    // The system keeps some hundred descriptors for a reader that is stopped.
    while (exchange_.lend(reader, name, piece.memory.descriptor) != local::Sent::packet) {
      if (!fabric_.alive(reader)) break;
      if (std::chrono::steady_clock::now() > until)
        throw Error(fmt::format("rank {} has taken no descriptor of device memory for {} s", reader,
                                kTakesDescriptors.count()));
      std::this_thread::sleep_for(kShortly);
    }
    piece.readers.insert(reader);
  }
}

std::byte* CudaPool::find(Rank owner, std::uint64_t block) {
  const auto piece = static_cast<std::uint32_t>(block / blocks_per_piece_);
  const std::size_t offset = block % blocks_per_piece_ * stride_;
  if (owner == fabric_.rank() && block < taken_)
    return static_cast<std::byte*>(pieces_[piece].memory.address) + offset;
  const auto found = mapped_.find({owner, piece});
  const Mapping mapping = found == mapped_.end() ? map(owner, piece) : found->second;
  if (mapping.bytes < offset + stride_)
    local::refuse_memory_of(owner, fmt::format("block {} of its device memory lies outside of it", block));
  return mapping.address + offset;
}

CudaPool::Mapping CudaPool::map(Rank owner, std::uint32_t piece) {
  const auto peer = peers_.find(owner);
  if (peer == peers_.end()) local::refuse_memory_of(owner, "it lends none to this rank");
  const std::uint32_t pool = peer->second;
  auto lent = borrowed_.take(owner, pool, piece);
  if (!lent) {
    exchange_.receive();
    lent = borrowed_.take(owner, pool, piece);
  }
  if (!lent)
    throw Error(
        fmt::format("rank {} has no descriptor of piece {} of rank {}'s device memory; it may have "
                    "too many open files",
                    fabric_.rank(), piece, owner));
  const OnDeviceOfPool here(device_);
  void* address = kernel::device().map_shared(std::move(lent->descriptor), lent->bytes);
  return mapped_[{owner, piece}] = {static_cast<std::byte*>(address), lent->bytes};
}

}  // namespace

void BorrowedPieces::add(Rank owner, const LentPiece& piece, Descriptor descriptor) {
  const std::lock_guard lock(mutex_);
  pieces_[{owner, piece.pool, piece.piece}] = {std::move(descriptor), piece.bytes};
}

std::optional<BorrowedPieces::Piece> BorrowedPieces::take(Rank owner, std::uint32_t pool,
                                                          std::uint32_t piece) {
  const std::lock_guard lock(mutex_);
  auto found = pieces_.extract({owner, pool, piece});
  if (found.empty()) return std::nullopt;
  return std::move(found.mapped());
}

void BorrowedPieces::forget(Rank owner, std::uint32_t pool) {
  const std::lock_guard lock(mutex_);
  std::erase_if(pieces_, [&](const auto& entry) {
    return std::get<0>(entry.first) == owner && std::get<1>(entry.first) == pool;
  });
}

std::unique_ptr<DevicePool> Pools::open(std::size_t block_bytes, std::span<const Rank> peers) {
  DescriptorExchange& exchange = watcher_.exchange();
  for (const Rank peer : peers)
    if (peer != fabric_.rank() && fabric_.alive(peer)) exchange.accept_loans(peer);
  return std::make_unique<CudaPool>(fabric_, exchange, borrowed_, ++opened_, block_bytes);
}

}  // namespace starling::fabric::cuda
