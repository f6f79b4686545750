#pragma once

#include <shared_mutex>

#include "starling/fabric/network/questions.h"
#include "starling/fabric/network/wire.h"
#include "starling/fabric/services.h"

namespace starling::network {

/// Services over a wire, on whose threads they are called.
class NetworkServices final : public Services, private Arrival::Owner {
 public:
  NetworkServices(Wire& wire, Questions& questions, std::function<bool(Rank)> alive)
      : wire_(wire), questions_(questions), alive_(std::move(alive)) {}

  std::uint64_t serve(Service service) override;
  void end(std::uint64_t service) override;
  void tell(const Outgoing& message, std::uint64_t service, Rank to) override;
  std::optional<Arrival> ask(const Outgoing& question, std::uint64_t service, Rank to,
                             Deadline deadline) override;
  bool await_room(Rank to, Deadline deadline) const override;

  /// From the wire: a call, or something told.
  void called(Rank from, const Frame& frame, const Slice& payload);

 private:
  void send(FrameKind kind, std::uint64_t service, std::uint64_t number, const Outgoing& message, Rank to);
  void done_with(void* handle) noexcept override { delete static_cast<Slice*>(handle); }

  Wire& wire_;
  Questions& questions_;
  std::function<bool(Rank)> alive_;
  std::shared_mutex mutex_;  // shared by the calls that run
  std::uint32_t served_ = 0;
  std::map<std::uint64_t, Service> services_;
};

}  // namespace starling::network
