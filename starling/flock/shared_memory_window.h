#pragma once

#include <atomic>

#include "starling/flock/cell.h"
#include "starling/flock/window_transport.h"

namespace starling::flock {

/// The start of a rank's exposed window memory; its cells follow.
struct WindowControl {
  std::atomic<std::uint32_t> holder;   // of the mutex: rank + 1
  std::atomic<std::int64_t> progress;  // the number of steps that its owner has made
};

/// The properties that all parts of a window share.
struct WindowShape {
  ConstBuffer value;                   // a value's type and length, without an address
  std::vector<Rank> members;           // the ranks that read every tensor
  bool shared = false;                 // they change it, too
  fabric::DevicePool* pool = nullptr;  // where values lie that are on a device

  std::size_t part_bytes(std::size_t sources) const;
};

/// One rank's part: the control block, the cell of its tensor, and one cell per source.
struct WindowPart {
  Rank owner = 0;
  std::byte* memory = nullptr;
  std::vector<Rank> sources = {};

  WindowControl& control() const { return *reinterpret_cast<WindowControl*>(memory); }
  Cell tensor(const std::shared_ptr<Fabric>& fabric, const WindowShape& shape, Rank who) const;
  /// The slot of the k-th source, for the source or the owner.
  Cell slot(const std::shared_ptr<Fabric>& fabric, const WindowShape& shape, std::size_t k, Rank who) const;
};

/// A window part in memory that this process can access: any rank's if ranks share memory, otherwise only
/// this rank's own, for the ranks that its WindowService serves.
class SharedMemoryWindow final : public WindowTransport {
 public:
  /// `who` is the calling rank.
  SharedMemoryWindow(std::shared_ptr<Fabric> fabric, const WindowShape& shape, const WindowPart& part,
                     Rank who);

  Cell& tensor() { return tensor_; }

  bool has_slot() const override { return slot_.has_value(); }
  void deposit(const Deposit& deposit) override;
  Reading read(const Reader& reader) override;
  std::optional<Step> average_with(ConstBuffer mine, double weight, Buffer moved) override;
  Step progress() const override { return control_.progress.load(std::memory_order_acquire); }
  void tell_progress(Step steps) override;
  std::optional<Rank> lock(bool look) override;
  void unlock() override;
  void withdraw() override;

 private:
  std::shared_ptr<Fabric> fabric_;
  ConstBuffer value_;  // see WindowShape
  Rank owner_;
  Rank who_;
  WindowControl& control_;
  Cell tensor_;
  std::optional<Cell> slot_;
};

}  // namespace starling::flock
