#pragma once

#include <string>
#include <sys/types.h>

#include "starling/base/types.h"

namespace starling::tool {

/// A child process that hosts the store for the rendezvous of a job's ranks, since the launcher itself must
/// not have threads. It ends with this object, or when this process ends in any way. If the process that
/// serves the store dies, another one continues with its entries (network::StoreSupervisor).
class StoreHost {
 public:
  /// For a fabric whose plugin exists; throws Error otherwise. Listens only on this address of this machine.
  StoreHost(const std::string& fabric, const std::string& address);
  ~StoreHost();
  StoreHost(const StoreHost&) = delete;
  StoreHost& operator=(const StoreHost&) = delete;

  const std::string& where() const { return where_; }  // address:port
  /// The job's token, which every client must know; ranks get it as STARLING_JOB. It is new and random.
  const std::string& token() const { return token_; }

  /// Notifies ranks that still wait for this one to join (fabric/c10d/group_formation.cpp).
  void tell_exited(Rank rank);

 private:
  int hold_ = -1;
  pid_t pid_ = -1;
  std::string where_;
  std::string token_;
  std::string exits_;
};

}  // namespace starling::tool
