#pragma once

#include <torch/version.h>

#include <torch/csrc/distributed/c10d/Store.hpp>

#if TORCH_VERSION_MAJOR >= 2
#include <torch/csrc/distributed/c10d/Backend.hpp>
#else
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#endif

// What differs between versions of torch.

namespace starling::c10d_engine {

#if TORCH_VERSION_MAJOR >= 2
using Group = ::c10d::Backend;
#else
using Group = ::c10d::ProcessGroup;
#endif
using GroupPtr = c10::intrusive_ptr<Group>;
using StorePtr = c10::intrusive_ptr<::c10d::Store>;
using WorkPtr = c10::intrusive_ptr<::c10d::Work>;

/// Three process groups of the same ranks, for nobody else's use. A connection writes in order, and Gloo says
/// beforehand when there is room for a message: frames, which must not wait behind long payloads, have a
/// group of their own, and so have payloads that go up to higher ranks and down to lower ones.
struct Groups {
  GroupPtr frames;
  GroupPtr up;
  GroupPtr down;
};

}  // namespace starling::c10d_engine
