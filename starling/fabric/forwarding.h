#pragma once

#include <memory>

#include "starling/fabric/fabric.h"

namespace starling::fabric {

/// Forwards all calls to another fabric; fabrics that wrap one override the calls that they change.
class ForwardingFabric : public Fabric {
 public:
  explicit ForwardingFabric(std::shared_ptr<Fabric> inner) : inner_(std::move(inner)) {}

  Rank rank() const override { return inner_->rank(); }
  Rank size() const override { return inner_->size(); }
  Outgoing reserve(std::size_t bytes) override { return inner_->reserve(bytes); }
  void post(const OutgoingRange& range, const MessageHeader& header, Rank to) override {
    inner_->post(range, header, to);
  }
  bool backlogged(Rank to, std::uint64_t bytes) override { return inner_->backlogged(to, bytes); }
  std::optional<Arrival> poll(Rank source) override { return inner_->poll(source); }
  std::uint32_t wake_count() const override { return inner_->wake_count(); }
  void nudge() override { inner_->nudge(); }
  void sleep(std::uint32_t wake_count, std::span<const Rank> sources, Deadline deadline) override {
    inner_->sleep(wake_count, sources, deadline);
  }
  std::uint64_t expose(std::size_t bytes) override { return inner_->expose(bytes); }
  void withdraw(std::uint64_t memory, std::size_t bytes) override { inner_->withdraw(memory, bytes); }
  std::byte* exposed(Rank rank, std::uint64_t memory) override { return inner_->exposed(rank, memory); }
  void yield_cpu() override { inner_->yield_cpu(); }
  void leave() override { inner_->leave(); }
  bool alive(Rank peer) const override { return inner_->alive(peer); }
  std::string exclusion_reason() const override { return inner_->exclusion_reason(); }
  void exclude(Rank peer) override { inner_->exclude(peer); }
  std::uint64_t bytes_from(Rank source) const override { return inner_->bytes_from(source); }
  Rank ranks_per_host() const override { return inner_->ranks_per_host(); }
  Board& board() override { return inner_->board(); }
  RemoteCalls* remote_calls() override { return inner_->remote_calls(); }
  DeviceMessages* device_messages() override { return inner_->device_messages(); }
  DevicePools* device_pools() override { return inner_->device_pools(); }
  Collectives* collectives() override { return inner_->collectives(); }
  Admission* admission() override { return inner_->admission(); }

 protected:
  Fabric& inner() const { return *inner_; }
  std::shared_ptr<Fabric> shared_inner() const { return inner_; }

 private:
  std::shared_ptr<Fabric> inner_;
};

}  // namespace starling::fabric
