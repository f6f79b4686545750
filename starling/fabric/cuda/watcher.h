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

namespace starling::fabric::cuda {

/// A thread that passes descriptors of device memory and ends the waits of streams for dead peers. It makes
/// no calls of the device, which could block in such a wait. Owned by the cuda fabric.
class Watcher {
 public:
  Watcher(Fabric& fabric, std::string job, Outbox& outbox, Inbox& inbox)
      : fabric_(fabric), job_(std::move(job)), outbox_(outbox), inbox_(inbox) {}
  ~Watcher();
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;

  /// Starts the thread; called at the first message in device memory that this rank sends or receives. Throws
  /// Error.
  void start();
  /// Requests the descriptor of a peer's piece for the inbox.
  void ask(Rank owner, std::uint32_t piece);

 private:
  void run();
  void look_for_deaths();

  Fabric& fabric_;
  const std::string job_;
  Outbox& outbox_;
  Inbox& inbox_;
  std::mutex mutex_;  // guards starting
  std::atomic<bool> started_{false};
  std::unique_ptr<DescriptorExchange> exchange_;
  std::vector<bool> dead_;  // by rank
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace starling::fabric::cuda
