#include "pending.h"

#include <atomic>
#include <chrono>
#include <pthread.h>

#include "starling/base/error.h"

namespace py = pybind11;

namespace starling::python {
namespace {

constexpr auto kBetweenSignals = std::chrono::milliseconds(100);

std::atomic<bool> forked{false};  // this process was forked from a member of a flock

}  // namespace

void refuse_in_child() {
  if (forked)
    throw Error(
        "this process was forked by a member of a flock, and the flock is its parent's alone; start workers "
        "by spawning "
        "(multiprocessing's spawn, DataLoader's multiprocessing_context) or leave the flock to the parent");
}

void note_member() {
  static const int registered = pthread_atfork(nullptr, nullptr, [] { forked = true; });
  static_cast<void>(registered);
}

void wait_for_result(Pending& pending) {
  bool ended = false;
  while (!ended) {
    {
      const py::gil_scoped_release release;
      ended = pending.wait_on(kBetweenSignals);
    }
    if (!ended && PyErr_CheckSignals() != 0) {
      py::error_already_set interrupted;
      {
        const py::gil_scoped_release release;  // another thread may be completing it, and need the lock
        pending.pause();
      }
      throw interrupted;
    }
  }
}

// The destructor of a Pending waits. If no message can arrive any more (the interpreter ends, or this is a
// forked child), the operation is abandoned until the process ends.
Started::~Started() {
  if (!pending_) return;
  if (forked || Py_IsInitialized() == 0 || _Py_IsFinalizing() != 0) {
    pending_.release();  // NOLINT: leaked on purpose
    return;
  }
  const py::gil_scoped_release release;
  pending_.reset();
}

bool Started::ready() {
  const py::gil_scoped_release release;
  return pending_->ready();
}

void Started::wait() {
  wait_for_result(*pending_);
}

bool Started::wait_for(double seconds) {
  const py::gil_scoped_release release;
  return pending_->wait_for(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(seconds)));
}

}  // namespace starling::python
