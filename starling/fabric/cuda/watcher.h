#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "starling/fabric/cuda/descriptor_exchange.h"
#include "starling/fabric/cuda/inbox.h"
#include "starling/fabric/cuda/outbox.h"
#include "starling/fabric/cuda/pool.h"

namespace starling::fabric::cuda {

/// The thread beside a rank's device messages and pools: it passes descriptors, and ends the waits of streams
/// for peers that have died. It makes no call of the device, which such a wait might block. Owned by the cuda
/// fabric.
class Watcher {
 public:
  Watcher(Fabric& fabric, std::string job, Outbox& outbox, Inbox& inbox, BorrowedPieces& borrowed)
      : fabric_(fabric), job_(std::move(job)), outbox_(outbox), inbox_(inbox), borrowed_(borrowed) {}
  ~Watcher();
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;

  /// With this rank's first message or pool in device memory, or the first message for it. Throws Error.
  void start();
  /// Started.
  DescriptorExchange& exchange() {
    start();
    return *exchange_;
  }
  /// Gets the descriptor of a peer's piece for the inbox.
  void ask(Rank owner, std::uint32_t piece);

 private:
  void run();
  void look_for_deaths();

  Fabric& fabric_;
  const std::string job_;
  Outbox& outbox_;
  Inbox& inbox_;
  BorrowedPieces& borrowed_;
  std::mutex mutex_;  // of starting
  std::atomic<bool> started_{false};
  std::unique_ptr<DescriptorExchange> exchange_;
  std::vector<bool> dead_;  // by rank
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace starling::fabric::cuda
