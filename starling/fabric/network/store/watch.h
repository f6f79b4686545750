#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "starling/fabric/network/store/client.h"
#include "starling/launch/fd.h"

namespace starling::network {

/// A thread that tells when a job's store is gone for good. It has a connection of its own, and sleeps.
class StoreWatch {
 public:
  /// `gone` is called at most once, by the thread, with the reason.
  StoreWatch(std::shared_ptr<const StoreClient> client, std::function<void(const std::string&)> gone);
  ~StoreWatch();
  StoreWatch(const StoreWatch&) = delete;
  StoreWatch& operator=(const StoreWatch&) = delete;

 private:
  launch::Fd end_;  // closed to end the thread
  std::thread thread_;
  int forks_;
};

}  // namespace starling::network
