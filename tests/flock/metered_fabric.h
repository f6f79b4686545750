#pragma once

#include <atomic>

#include "starling/fabric/fabric.h"

namespace starling {

/// Counts the bytes that would travel over a network: those this rank posts, and those that come.
class MeteredFabric final : public Fabric {
 public:
  explicit MeteredFabric(std::shared_ptr<Fabric> inner) : inner_(std::move(inner)) {}

  std::atomic<std::uint64_t> posted{0};
  std::atomic<std::uint64_t> received{0};

  void post(const OutgoingRange& range, const MessageHeader& header, Rank to) override {
    posted += range.bytes().size();
    inner_->post(range, header, to);
  }
  std::optional<Arrival> poll(Rank source) override {
    auto arrival = inner_->poll(source);
    if (arrival) received += arrival->bytes().size();
    return arrival;
  }

  Rank rank() const override { return inner_->rank(); }
  Rank size() const override { return inner_->size(); }
  Outgoing reserve(std::size_t bytes) override { return inner_->reserve(bytes); }
  std::uint32_t ticket() const override { return inner_->ticket(); }
  void nudge() override { inner_->nudge(); }
  Rank ranks_per_host() const override { return inner_->ranks_per_host(); }
  void sleep(std::uint32_t ticket, std::span<const Rank> sources, Deadline deadline) override {
    inner_->sleep(ticket, sources, deadline);
  }
  std::uint64_t expose(std::size_t bytes) override { return inner_->expose(bytes); }
  void withdraw(std::uint64_t memory, std::size_t bytes) override { inner_->withdraw(memory, bytes); }
  std::byte* exposed(Rank rank, std::uint64_t memory) override { return inner_->exposed(rank, memory); }
  void give_way() override { inner_->give_way(); }
  bool alive(Rank peer) const override { return inner_->alive(peer); }
  Board& board() override { return inner_->board(); }

 private:
  std::shared_ptr<Fabric> inner_;
};

}  // namespace starling
