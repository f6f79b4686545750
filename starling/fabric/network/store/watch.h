#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "starling/base/os/descriptor.h"
#include "starling/fabric/network/store/client.h"

namespace starling::fabric::network {

/// A thread that reports when a job's store is gone for good. It sleeps on its own connection.
class StoreWatch {
 public:
  /// `gone` is called at most once, on that thread, with the reason.
  StoreWatch(std::shared_ptr<const StoreClient> client, std::function<void(const std::string&)> gone);
  ~StoreWatch();
  StoreWatch(const StoreWatch&) = delete;
  StoreWatch& operator=(const StoreWatch&) = delete;

 private:
  Descriptor end_;  // closing it ends the thread
  std::thread thread_;
  int forks_;
};

}  // namespace starling::fabric::network
