#pragma once

#include <string>
#include <sys/types.h>

namespace starling::tool {

/// A process of ours that hosts the store where the ranks of a job meet, until this is dropped or our process
/// ends in whatever way: the launcher itself must not have threads.
class StoreHost {
 public:
  /// Throws Error with what the fabric's engine says when it cannot be had.
  StoreHost(const std::string& fabric, const std::string& address);
  ~StoreHost();
  StoreHost(const StoreHost&) = delete;
  StoreHost& operator=(const StoreHost&) = delete;

  const std::string& where() const { return where_; }  // address:port

 private:
  int hold_ = -1;
  pid_t pid_ = -1;
  std::string where_;
};

}  // namespace starling::tool
