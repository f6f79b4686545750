#pragma once

#include <string>
#include <sys/types.h>

#include "starling/base/types.h"

namespace starling::tool {

/// A process of ours that hosts the store where the ranks of a job meet, until this is dropped or our process
/// ends in whatever way: the launcher itself must not have threads. Where the process that serves the store
/// dies, another one goes on with its entries (network::StoreSupervisor).
class StoreHost {
 public:
  /// For a fabric whose shared object is there, else it throws Error. Listens on this address of ours only.
  StoreHost(const std::string& fabric, const std::string& address);
  ~StoreHost();
  StoreHost(const StoreHost&) = delete;
  StoreHost& operator=(const StoreHost&) = delete;

  const std::string& where() const { return where_; }  // address:port
  /// The job's, without which nobody gets in: ranks find it as STARLING_JOB. It is new, and random.
  const std::string& token() const { return token_; }

  /// Ranks that still wait for this one to join hear of it (fabric/c10d/group_formation.cpp).
  void tell_exited(Rank rank);

 private:
  int hold_ = -1;
  pid_t pid_ = -1;
  std::string where_;
  std::string token_;
  std::string exits_;
};

}  // namespace starling::tool
