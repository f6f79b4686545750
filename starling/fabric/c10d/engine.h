#pragma once

#include <torch/version.h>

#include <torch/csrc/distributed/c10d/Store.hpp>

#if TORCH_VERSION_MAJOR >= 2
#include <torch/csrc/distributed/c10d/Backend.hpp>
#else
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#endif

// The types that differ between versions of torch.

namespace starling::fabric::c10d_engine {

#if TORCH_VERSION_MAJOR >= 2
using Group = ::c10d::Backend;
#else
using Group = ::c10d::ProcessGroup;
#endif
using GroupPtr = c10::intrusive_ptr<Group>;
using StorePtr = c10::intrusive_ptr<::c10d::Store>;
using WorkPtr = c10::intrusive_ptr<::c10d::Work>;

/// Three process groups of the same ranks, for the fabric's exclusive use. A connection writes in order, and
/// Gloo sends a control message before it accepts a payload. Frames must not wait behind long payloads, so
/// they have their own group, and so have payloads to higher ranks (up) and to lower ranks (down).
struct Groups {
  GroupPtr frames;
  GroupPtr up;
  GroupPtr down;
};

}  // namespace starling::fabric::c10d_engine
