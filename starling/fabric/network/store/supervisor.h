#pragma once

#include <functional>

#include "starling/fabric/network/store/server.h"

namespace starling::network {

/// Serves a store in a child process, and in another one when that child dies: the supervisor keeps the
/// listening socket and the journal, so that clients find the same store with the same entries. The calling
/// process must not have threads.
class StoreSupervisor {
 public:
  /// Throws as StoreServer does.
  StoreSupervisor(const std::string& address, std::string token);

  const StoreAddress& where() const { return listener_.where; }

  /// Until the other end of `leash` is closed. `say` is told what happens to the child. Throws Error when
  /// children die as fast as they are started, or the journal is incomplete.
  void serve(int leash, const std::function<void(const std::string&)>& say);

 private:
  std::string token_;
  StoreListener listener_;
  StoreJournal journal_;
};

}  // namespace starling::network
