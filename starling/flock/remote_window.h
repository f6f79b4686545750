#pragma once

#include <chrono>
#include <map>
#include <string>

#include "starling/fabric/remote_calls.h"
#include "starling/flock/shared_memory_window.h"

namespace starling::flock {

/// Serves this rank's part of a window to ranks that cannot reach its memory. The fabric's threads carry out
/// their requests.
class WindowService {
 public:
  WindowService(const std::shared_ptr<Fabric>& fabric, WindowShape shape, const WindowPart& own);
  ~WindowService();
  WindowService(const WindowService&) = delete;
  WindowService& operator=(const WindowService&) = delete;

  /// The id by which other ranks call this service.
  std::uint64_t number() const { return number_; }
  /// The last progress that this peer reported.
  const std::atomic<Step>& progress(Rank peer) const { return remote_peers_.at(peer).progress; }

 private:
  struct RemotePeer {
    RemotePeer(const std::shared_ptr<Fabric>& fabric, const WindowShape& shape, const WindowPart& part,
               Rank who)
        : window(fabric, shape, part, who) {}
    SharedMemoryWindow window;
    std::atomic<Step> progress{0};
  };

  Outgoing answer(Rank from, std::span<const std::byte> said);

  std::shared_ptr<Fabric> fabric_;
  WindowShape shape_;
  std::map<Rank, RemotePeer> remote_peers_;
  std::uint64_t number_ = 0;
};

/// The parameters of a RemoteWindow besides its peer; `timeout` is read at every wait.
struct RemoteWindowOptions {
  std::string window;  // the window's name, for errors
  std::function<std::chrono::nanoseconds()> timeout;
};

/// A window part that is reached over a network: values are sent to its owner's WindowService. A deposit
/// arrives before any message that this rank sends to the same peer afterwards.
class RemoteWindow final : public WindowTransport {
 public:
  RemoteWindow(std::shared_ptr<Fabric> fabric, const WindowShape& shape, RemoteWindowOptions options,
               Rank peer, std::uint64_t service, bool has_slot, const std::atomic<Step>& progress);

  bool has_slot() const override { return has_slot_; }
  void deposit(const Deposit& deposit) override;
  Reading read(const Reader& reader) override;
  std::optional<Step> average_with(ConstBuffer mine, double weight, Buffer moved) override;
  Step progress() const override { return progress_.load(std::memory_order_acquire); }
  void tell_progress(Step steps) override;
  std::optional<Rank> lock(bool look) override;
  void unlock() override;

 private:
  Deadline deadline() const { return std::chrono::steady_clock::now() + options_.timeout(); }
  /// Sends a request and returns the reply. Empty if the peer is lost; throws TimedOut if it is alive but
  /// does not answer.
  std::optional<Arrival> ask(const Outgoing& question) const;

  std::shared_ptr<Fabric> fabric_;
  RemoteCalls& services_;
  ConstBuffer value_;  // see WindowShape
  RemoteWindowOptions options_;
  Rank peer_;
  std::uint64_t service_;
  bool has_slot_;
  const std::atomic<Step>& progress_;
};

}  // namespace starling::flock
