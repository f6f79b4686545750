#pragma once

#include <memory>
#include <pybind11/pybind11.h>
#include <vector>

#include "starling/flock/flock.h"

namespace starling::python {

/// Waits without the interpreter lock, and lets Ctrl-C through.
void wait_for_result(Pending& pending);

/// This process becomes a member of a flock: children that it forks from now on are refused.
void note_member();
/// Throws Error in a child that a member of a flock forked: the flock is its parent's, and nothing of it can
/// be used here.
void refuse_in_child();

/// A started operation in Python's hands, with the memory that it was given or has made.
class Started {
 public:
  explicit Started(Pending pending) : pending_(std::make_unique<Pending>(std::move(pending))) {}
  Started(Started&&) noexcept = default;
  ~Started();

  bool ready();
  void wait();
  bool wait_for(double seconds);

 protected:
  std::unique_ptr<Pending> pending_;
};

/// One whose result's length is known only when it is there: afterwards its bytes, as a buffer.
class Gathering : public Started {
 public:
  using Bytes = std::shared_ptr<std::vector<std::byte>>;
  Gathering(Bytes bytes, Pending pending) : Started(std::move(pending)), bytes_(std::move(bytes)) {}
  std::vector<std::byte>& bytes() { return *bytes_; }
  static Room room(const Bytes& bytes, DType dtype);

 private:
  Bytes bytes_;
};

}  // namespace starling::python
