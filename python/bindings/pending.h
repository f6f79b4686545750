#pragma once

#include <memory>
#include <pybind11/pybind11.h>

#include "starling/flock/flock.h"

namespace starling::python {

/// Waits without the interpreter lock, and lets Ctrl-C through.
void wait_for_result(Pending& pending);

/// Notes that this process is a member of a flock: flock calls in children that it forks from now on are
/// refused.
void note_member();
/// Throws Error in a child that was forked from a member of a flock: the flock belongs to the parent and
/// cannot be used in the child.
void refuse_in_child();

/// A started operation for Python, with the memory that it uses.
class Started {
 public:
  explicit Started(Pending pending) : pending_(std::make_unique<Pending>(std::move(pending))) {}
  Started(Started&&) noexcept = default;
  ~Started();

  bool ready();
  void wait();
  bool wait_for(double seconds);

 private:
  std::unique_ptr<Pending> pending_;
};

}  // namespace starling::python
