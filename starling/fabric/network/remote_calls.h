#pragma once

#include <shared_mutex>

#include "starling/fabric/network/pending_requests.h"
#include "starling/fabric/network/transport.h"
#include "starling/fabric/remote_calls.h"

namespace starling::fabric::network {

/// Remote calls over a transport, on whose threads the handlers run. Owned by the network fabric.
class NetworkRemoteCalls final : public RemoteCalls, private Arrival::Owner {
 public:
  NetworkRemoteCalls(Transport& transport, PendingRequests& requests, std::function<bool(Rank)> alive)
      : transport_(transport), requests_(requests), alive_(std::move(alive)) {}

  std::uint64_t add_handler(Handler handler) override;
  void remove_handler(std::uint64_t handler) override;
  void notify(const Outgoing& arguments, std::uint64_t handler, Rank to) override;
  std::optional<Arrival> call(const Outgoing& arguments, std::uint64_t handler, Rank to,
                              Deadline deadline) override;
  bool wait_for_room(Rank to, Deadline deadline) const override;

  /// Called by the transport: a call or a notification of another rank.
  void called(Rank from, const Frame& frame, const Slice& payload);

 private:
  void send(FrameKind kind, std::uint64_t handler, std::uint64_t number, const Outgoing& message, Rank to);
  void done_with(void* handle) noexcept override { delete static_cast<Slice*>(handle); }

  Transport& transport_;
  PendingRequests& requests_;
  std::function<bool(Rank)> alive_;
  std::shared_mutex mutex_;  // held shared by running handlers
  std::uint32_t last_handler_ = 0;
  std::map<std::uint64_t, Handler> handlers_;
};

}  // namespace starling::fabric::network
