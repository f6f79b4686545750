#pragma once

#include <functional>

#include "starling/fabric/network/store/server.h"

namespace starling::fabric::network {

/// Serves a store in a child process, and restarts it when it dies: the supervisor keeps the listening socket
/// and the journal, so that clients find the same store with the same entries. The calling process must be
/// single-threaded.
class StoreSupervisor {
 public:
  /// Throws like StoreServer.
  StoreSupervisor(const std::string& address, std::string token);

  const StoreAddress& where() const { return listener_.where; }

  /// Serves until the other end of `control` is closed. Reports deaths of the child through `say`. Throws
  /// Error if children die as fast as they are started, or if the journal is incomplete.
  void serve(int control, const std::function<void(const std::string&)>& say);

 private:
  std::string token_;
  StoreListener listener_;
  StoreJournal journal_;
};

}  // namespace starling::fabric::network
